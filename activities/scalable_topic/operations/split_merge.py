"""Operations `split`, `merge` and `rebucket`, run by brokers and then completed (PIP-468, PIP-486).

Brokers answer 500 for a segment that is not active, missing or not a neighbour, and for their own failures (5.0.1).
A leader that dies between two of its steps leaves segments that take no messages, or that are missing. So the layout
decides, not the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

from activities.scalable_topic.auto_scale import hold_auto_scale
from activities.scalable_topic.operations.context import TopicEditor, TopicView, ask_leader
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.segment_loads import segment_load
from models.scalable_topic.operation_input import SegmentChoice
from models.scalable_topic.operation_state import TopicOutcome, Verdict
from models.segments.change import SegmentChange
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import LayoutError, SegmentInfo

Choose = Callable[[TopicView, SegmentLayout], SegmentChange]
"""Function that chooses the change of segments."""


def to_split(view: TopicView, layout: SegmentLayout) -> SegmentChange:
    """Return the requested split.

    Raises:
        LayoutError: there is no such segment, or it has one hash only.
    """
    return _change(layout, _chosen(view, layout))


def to_rebucket(view: TopicView, layout: SegmentLayout) -> SegmentChange:
    """Return the requested rebucket.

    Raises:
        LayoutError: there is no such segment, or it cannot have so many entry buckets.
    """
    return _change(layout, _chosen(view, layout), buckets=view.task.input.buckets)


def to_merge(view: TopicView, layout: SegmentLayout) -> SegmentChange:
    """Return the requested merge.

    Raises:
        LayoutError: there are no such segments, they are not neighbours, or there is one segment only.
    """
    if view.task.input.segments:
        return _change(layout, *view.task.input.segments)
    loads = {segment.segment_id: _traffic(view, segment) for segment in layout.active}

    def rank(pair: tuple[SegmentInfo, SegmentInfo]) -> tuple[float, float, int]:
        bytes_, messages = (sum(both) for both in zip(*(loads[segment.segment_id] for segment in pair), strict=True))
        return bytes_, messages, sum(segment.hash_range.size for segment in pair)

    if len(layout.active) < 2:
        raise LayoutError("it has one active segment only, which cannot be merged")
    first, second = min(pairwise(layout.active), key=rank)
    return _change(layout, first.segment_id, second.segment_id)


def planned(choose: Choose, view: TopicView) -> TopicOutcome:
    """Return what would be done."""
    layout = view.layout()
    change = choose(view, layout)
    if children := change.children(layout):
        return view.outcome(Verdict.UNCHANGED, f"{_describe(change, children)} already")
    missing = [subscription.name for subscription in view.known_subscriptions(layout) if not subscription.recorded]
    become = ", ".join(map(str, change.ranges)) + _with_buckets(change.buckets)
    description = f"{_named(change.parents)} would become {become}"
    more = f"; subscriptions would get a record first: {', '.join(missing)}" if missing else ""
    return view.outcome(Verdict.CHANGED, description + more)


def carried_out(choose: Choose, editor: TopicEditor) -> TopicOutcome:
    """Ask brokers to change segments, unless this is done already, and complete the change.

    Raises:
        LayoutError: another client or broker changed these segments differently.
        AdminError: brokers refused or did not answer; another attempt may find the change made.
        StoreConflict: the layout is wrong after the change.
    """
    change, before = _noted(editor), editor.layout()
    again = change is not None
    if change is None:
        change = choose(editor, before)
        if children := change.children(before):
            return _completed(editor, change, children, Verdict.UNCHANGED)
        editor.guard.note(segments=change.parents, next_segment_id=change.first_id, buckets=change.buckets)
    hold_auto_scale(editor.store, editor.guard, editor.name)
    first = editor.secure(before.active)
    others: list[str] = []
    if not change.children(before := editor.layout()):
        _ask(editor, change)
        others = list(_differences(change, before, editor.layout()))
    elif not again:
        others = ["brokers, or another client, did it in the meantime"]
    children = change.children(editor.layout())
    if not children:
        raise StoreConflict(f"{_named(change.parents)} are as before after a broker said that they are changed")
    done = _completed(editor, change, children, Verdict.CHANGED, *others)
    return done.model_copy(
        update={"registered": first.registered + done.registered, "healed": first.healed + done.healed}
    )


# Inside ---------------------------------------------------------------------------------------------------------------


def _chosen(view: TopicView, layout: SegmentLayout) -> int:
    """Return the id of the named or chosen segment."""
    input = view.task.input
    if input.segment is not None:
        return input.segment
    busiest = input.choose is SegmentChoice.BUSIEST

    def rank(segment: SegmentInfo) -> tuple[float, float, int]:
        return (*(_traffic(view, segment) if busiest else (0.0, 0.0)), segment.hash_range.size)

    # Of equal segments the first, so that every attempt chooses the same.
    return max(layout.active, key=rank).segment_id


def _change(layout: SegmentLayout, *ids: int, buckets: int | None = None) -> SegmentChange:
    """Return the change of these segments, which may have been made already."""
    there = [layout.segments[number] for number in ids if number in layout.segments]
    made = SegmentChange(tuple(there), layout.next_segment_id, buckets)
    if len(there) == len(ids) and (all(segment.sealed for segment in there) or made.children(layout)):
        return made
    return SegmentChange.of(layout, *ids, buckets=buckets)


def _traffic(view: TopicView, segment: SegmentInfo) -> tuple[float, float]:
    load = segment_load(view.store, view.name, segment.segment_id)
    return load.byte_rate, load.msg_rate


def _noted(editor: TopicEditor) -> SegmentChange | None:
    """Return the change that an earlier attempt chose."""
    noted = editor.noted()
    return SegmentChange(noted.segments, noted.next_segment_id, noted.buckets) if noted.segments else None


def _ask(editor: TopicEditor, change: SegmentChange) -> None:
    first, *others = change.ids

    def request(admin: PulsarAdmin) -> None:
        if change.buckets is not None:
            admin.scalable_topics.rebucket(editor.name, first, change.buckets)
        elif others:
            admin.scalable_topics.merge(editor.name, first, *others)
        else:
            admin.scalable_topics.split(editor.name, first)

    try:
        ask_leader(editor, request)
    except AdminError:
        if not change.children(editor.layout()):
            raise


def _completed(
    editor: TopicEditor, change: SegmentChange, children: tuple[SegmentInfo, ...], verdict: Verdict, *others: str
) -> TopicOutcome:
    """Create missing segments and cursors of the change, and return the outcome."""
    # Brokers that change segments on their own at the same time give children names that they do not have (read).
    new = [
        segment for segment in editor.layout().active if segment.segment_id >= change.first_id or segment in children
    ]
    # Includes subscriptions that were created while brokers changed the segments.
    late = editor.secure(new)
    if faults := layout_faults(editor.layout()):
        raise StoreConflict(f"the layout is not as it must be: {'; '.join(faults)}")
    description = _describe(change, children) + (" already" if verdict is Verdict.UNCHANGED else "")
    more = [f"{late.healed} segments were missing, or lacked a subscription, and are made"] if late.healed else []
    return editor.outcome(
        verdict, "; ".join([description, *more, *others]), registered=late.registered, healed=late.healed
    )


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


def _describe(change: SegmentChange, children: tuple[SegmentInfo, ...]) -> str:
    if change.parents == children:
        return f"{_named(children)} is one{_with_buckets(change.buckets)}"
    return f"{_named(change.parents)} became {_named(children)}{_with_buckets(change.buckets)}"


def _with_buckets(buckets: int | None) -> str:
    return "" if buckets is None else f" with {buckets} entry buckets"


def _named(segments: tuple[SegmentInfo, ...]) -> str:
    return ", ".join(segment.descriptor for segment in segments)
