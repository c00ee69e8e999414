"""A split, a merge or a rebucket of segments, carried out by the brokers, with what they leave out (PIP-468, PIP-486).

Brokers answer 500 for a segment that is not active, not there or not a neighbour, and for their own failures (5.0.1).
A leader that dies between two of its steps leaves segments that take no messages, or that are missing. So the layout
decides, and not the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from activities.scalable_topic.auto_scale import hold_auto_scale
from activities.scalable_topic.operations.context import Hand, Look
from activities.scalable_topic.operations.leader import ask_leader
from activities.scalable_topic.operations.subscriptions import known_subscriptions, secure
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from models.scalable_topic.operation_results import TopicOutcome, Verdict
from models.segments.change import SegmentChange
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SegmentInfo

Choose = Callable[[Look, SegmentLayout], SegmentChange]
"""Which segments are changed."""


def planned(look: Look, choose: Choose) -> TopicOutcome:
    """What would be done."""
    layout = look.layout()
    change = choose(look, layout)
    if children := change.children(layout):
        return look.outcome(Verdict.UNCHANGED, f"{_told(change, children)} already")
    missing = [one.name for one in known_subscriptions(look, layout) if not one.recorded]
    become = ", ".join(map(str, change.ranges)) + _with_buckets(change.buckets)
    told = f"{_named(change.parents)} would become {become}"
    more = f"; subscriptions would get a record first: {', '.join(missing)}" if missing else ""
    return look.outcome(Verdict.CHANGED, told + more)


def carried_out(hand: Hand, choose: Choose) -> TopicOutcome:
    """Have brokers change segments, unless they have already, and complete what that leaves out.

    Raises:
        LayoutError: somebody else has changed these segments in another way.
        AdminError: brokers do not do it; another attempt may find it done.
        StoreConflict: the layout is not what it has to be afterwards.
    """
    change, before = _noted(hand), hand.layout()
    again = change is not None
    if change is None:
        change = choose(hand, before)
        if children := change.children(before):
            return _completed(hand, change, children, Verdict.UNCHANGED)
        hand.guard.note(segments=change.parents, next_segment_id=change.first_id, buckets=change.buckets)
    hold_auto_scale(hand.store, hand.guard, hand.name)
    first = secure(hand, before.active)
    others: list[str] = []
    if not change.children(before := hand.layout()):
        _ask(hand, change)
        others = list(_differences(change, before, hand.layout()))
    elif not again:
        others = ["brokers, or somebody else, did it meanwhile"]
    children = change.children(hand.layout())
    if not children:
        raise StoreConflict(f"{_named(change.parents)} are as before after a broker said that they are changed")
    done = _completed(hand, change, children, Verdict.CHANGED, *others)
    return done.model_copy(
        update={"registered": first.registered + done.registered, "healed": first.healed + done.healed}
    )


# Inside ---------------------------------------------------------------------------------------------------------------


def _noted(hand: Hand) -> SegmentChange | None:
    """What an earlier attempt has chosen."""
    noted = hand.noted()
    return SegmentChange(noted.segments, noted.next_segment_id, noted.buckets) if noted.segments else None


def _ask(hand: Hand, change: SegmentChange) -> None:
    first, *others = change.ids

    def request(admin: PulsarAdmin) -> None:
        if change.buckets is not None:
            admin.scalable_topics.rebucket(hand.name, first, change.buckets)
        elif others:
            admin.scalable_topics.merge(hand.name, first, *others)
        else:
            admin.scalable_topics.split(hand.name, first)

    try:
        ask_leader(hand, request)
    except AdminError:
        if not change.children(hand.layout()):
            raise


def _completed(
    hand: Hand, change: SegmentChange, children: tuple[SegmentInfo, ...], verdict: Verdict, *others: str
) -> TopicOutcome:
    """See that each new segment stands, with a place for each subscription; say what came of it."""
    # Brokers that change segments on their own at the same time give children names that they do not have (read).
    new = [one for one in hand.layout().active if one.segment_id >= change.first_id or one in children]
    # Also what consumers have made until brokers had changed the segments.
    late = secure(hand, new)
    if faults := layout_faults(hand.layout()):
        raise StoreConflict(f"the layout is not as it has to be: {'; '.join(faults)}")
    told = _told(change, children) + (" already" if verdict is Verdict.UNCHANGED else "")
    more = [f"{late.healed} segments were missing, or lacked a subscription, and are made"] if late.healed else []
    return hand.outcome(verdict, "; ".join([told, *more, *others]), registered=late.registered, healed=late.healed)


def _differences(change: SegmentChange, before: SegmentLayout, after: SegmentLayout) -> Iterator[str]:
    """Return how a layout differs from what the change alone makes of it.

    Entry buckets of new segments are not compared: how many they get is a setting of brokers.
    """
    children = change.children(after)
    with suppress(ValueError):
        expected = change.after(before, children[0].created_at_ms if children else 0).segments
        for child in children:
            if twin := expected.get(child.segment_id):
                splits = {"entry_bucket_splits": child.entry_bucket_splits}
                expected[child.segment_id] = twin.model_copy(update=splits)
        changed = sorted(
            number for number in {*expected, *after.segments} if expected.get(number) != after.segments.get(number)
        )
        if changed:
            yield f"other segments were changed at the same time: {changed}, epoch {after.epoch}"


def _told(change: SegmentChange, children: tuple[SegmentInfo, ...]) -> str:
    if change.parents == children:
        return f"{_named(children)} is one{_with_buckets(change.buckets)}"
    return f"{_named(change.parents)} became {_named(children)}{_with_buckets(change.buckets)}"


def _with_buckets(buckets: int | None) -> str:
    return "" if buckets is None else f" with {buckets} entry buckets"


def _named(segments: tuple[SegmentInfo, ...]) -> str:
    return ", ".join(one.descriptor for one in segments)
