"""Subscriptions of a scalable topic: which there are, and whether brokers carry them to new segments.

Brokers know those that have a record, and no others: a segment that comes of a split or a merge gets no
cursor of the rest, and what these have not consumed counts as consumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from activities.scalable_topic.operations.context import Hand, Look, local
from activities.scalable_topic.regular_topic import GRACE, kind_of
from clients.errors import StoreConflict, StoreUnsupported
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import SegmentName, recordable, stored_topic
from clients.pulsar.records.scalable_topics import cursors_on, keep_subscription, recorded_subscriptions
from models.lifecycle.failures import some
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo, SubscriptionKind


class Secured(NamedTuple):
    """What was missing, and is there.

    Attributes:
        registered: subscriptions that have got a record.
        healed: segments that were missing, or lacked a subscription.
    """

    registered: int
    healed: int


class Known(NamedTuple):
    """A durable subscription.

    Attributes:
        name: its name.
        kind: how it is consumed.
        recorded: whether brokers have a record of it.
    """

    name: str
    kind: SubscriptionKind
    recorded: bool


def known_subscriptions(look: Look, layout: SegmentLayout) -> list[Known]:
    """All that have a record, or a cursor on a segment of the layout.

    A name that only its consumers have left, without any cursor, is of consumers that keep their places themselves: a
    record would have brokers keep messages for them for good. So would one of what keeps a regular topic in the grace
    window of its migration, which nobody consumes.
    """
    recorded = recorded_subscriptions(look.store, look.name)
    cursors = [
        (one.legacy, {*cursors_on(look.store, stored_topic(one.topic(local(look.name))))} - {GRACE})
        for one in layout.segments.values()
    ]
    native, legacy = ({name for old, names in cursors if old is which for name in names} for which in (False, True))
    kinds: dict[str, SubscriptionKind] = {name: kind for name, kind in recorded.items() if kind}
    unsure = legacy - kinds.keys()
    kinds |= _kinds_of_regular(look, unsure) if unsure else {}
    return [
        Known(name, kinds.get(name) or _guess(registered=name in recorded), recorded=bool(recorded.get(name)))
        for name in sorted(kinds.keys() | native | legacy)
    ]


def secure(hand: Hand, segments: Iterable[SegmentInfo]) -> Secured:
    """Give every subscription a record, and a cursor on each of some active segments, which are made where missing.

    Raises:
        StoreUnsupported: brokers cannot record one.
        StoreConflict: something is not there after a broker said that it is.
    """
    known = known_subscriptions(hand, hand.layout())
    # First: brokers fail to record a subscription while a segment is missing.
    healed = _give_places(hand, segments, [one.name for one in known])
    return Secured(_register(hand, known), healed)


def lacking(look: Look, segments: Iterable[SegmentInfo], names: Iterable[str]) -> dict[str, str]:
    """What is wrong with segments that take messages, in words, by their descriptors; empty for nothing."""
    wanted = list(names)
    found = {one.descriptor: _lack(look, one, wanted) for one in segments}
    return {descriptor: lack for descriptor, lack in found.items() if lack}


# Inside ---------------------------------------------------------------------------------------------------------------


def _register(hand: Hand, known: Iterable[Known]) -> int:
    """Give each subscription a record; returns how many had none.

    Raises:
        StoreUnsupported: brokers cannot record one.
        StoreConflict: one has no record after a broker said that it has.
    """
    all_ = list(known)
    if odd := [repr(one.name) for one in all_ if not recordable(one.name)]:
        raise StoreUnsupported(
            f"brokers cannot record subscriptions of these names: {', '.join(odd)}; move their consumers to a "
            "subscription of another name, and delete them"
        )
    for one in all_:
        hand.guard.require()
        hand.admin.scalable_topics.register(hand.name, one.name, one.kind)
        keep_subscription(hand.store, hand.name, one.name, one.kind, hand.guard.check)
    return sum(not one.recorded for one in all_)


def _give_places(hand: Hand, segments: Iterable[SegmentInfo], names: Iterable[str]) -> int:
    """Make segments that are missing, and cursors at their begin; returns how many segments lacked something.

    Raises:
        StoreConflict: something is missing after a broker said that it has made it.
    """
    of, wanted = list(segments), list(names)
    found = lacking(hand, of, wanted)
    for descriptor in found:
        hand.guard.require()
        hand.admin.scalable_topics.create_segment(hand.name, descriptor, wanted)
    if left := lacking(hand, [one for one in of if one.descriptor in found], wanted):
        told = "; ".join(f"segment {descriptor} {lack}" for descriptor, lack in left.items())
        raise StoreConflict(f"{told}, after a broker said that it has made it")
    return len(found)


def _lack(look: Look, segment: SegmentInfo, names: list[str]) -> str:
    if look.store.get(SegmentName(look.name, segment.descriptor).managed_ledger_path) is None:
        return "is missing"
    missing = [name for name in names if not _has_place(look, segment, name)]
    return f"has no cursor of {some(missing)}" if missing else ""


def _has_place(look: Look, segment: SegmentInfo, subscription: str) -> bool:
    try:
        look.reader.scalable_topics.backlog(look.name, segment.descriptor, subscription)
    except AdminNotFound:
        return False
    return True


def _kinds_of_regular(look: Look, names: set[str]) -> dict[str, SubscriptionKind]:
    """How subscriptions of the regular topic are consumed, from the type that their consumers have chosen."""
    topic = look.task.find_topic(look.name)
    found = topic.subscriptions.values() if topic else ()
    return {one.name: kind_of(one) for one in found if one.name in names}


def _guess(*, registered: bool) -> SubscriptionKind:
    """Stream consumers register themselves; brokers note a kind, and never ask for it (5.0.1)."""
    return SubscriptionKind.STREAM if registered else SubscriptionKind.QUEUE
