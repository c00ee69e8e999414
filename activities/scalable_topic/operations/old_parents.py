"""Regular parents that are consumed while nothing shows it to brokers; `parents` says what these wait for.

A migration looks at it until its VERIFY. Where messages were left by then, nobody did later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from activities.scalable_topic.operations.context import Hand, Look
from activities.scalable_topic.parents import done_with, regular_parents, release_parents
from activities.scalable_topic.regular import is_terminated
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.scalable_records import cursors_on, recorded_subscriptions
from models.lifecycle.failures import some
from models.segment import SegmentInfo
from models.segment_layout import SegmentLayout


class Unshown(NamedTuple):
    """What brokers do not see of a regular topic.

    Attributes:
        topic: the regular one.
        segments: of its parents' names that are missing, or lack a subscription that has nothing left.
        missing: whether one is.
        subscriptions: that have nothing left, and are not shown everywhere.
    """

    topic: TopicName
    segments: int
    missing: bool
    subscriptions: list[str]

    def __str__(self) -> str:
        who = f"{some(self.subscriptions)} have nothing" if self.subscriptions else "nobody has anything"
        so = "stream consumers cannot begin" if self.missing else "brokers keep its parents"
        return f"{so}: {who} left in {self.topic}, and no segment shows that to brokers"


def unshown(look: Look, layout: SegmentLayout, names: Iterable[str]) -> Unshown | None:
    """What brokers could see of the regular topic, and do not; None for nothing.

    Args:
        look: at the topic.
        layout: of it.
        names: of subscriptions that brokers ask about.
    """
    parents, known = regular_parents(layout), {*names}
    # Most topics end here, without a question to brokers.
    if not any(_lacks(look, one, known) is not None for one in parents):
        return None
    # In this order: behind the end nothing comes.
    if not all(is_terminated(look.reader, TopicName.parse(one.legacy_topic_name or "")) for one in parents):
        return None
    topic = look.task.find_topic(look.name)
    if topic is None or (done := done_with(topic, known)) is None:
        return None
    lacks = [(one, lack) for one in parents if (lack := _lacks(look, one, done)) is not None]
    if not lacks:
        return None
    missing = not all(_stands(look, one) for one, _ in lacks)
    return Unshown(topic.name, len(lacks), missing, sorted({name for _, lack in lacks for name in lack}))


def show(hand: Hand) -> Unshown | None:
    """Have brokers see it; what they still do not see afterwards.

    Raises:
        StoreConflict: what was made is not empty.
    """
    # Others are asked about by nobody: consumers that keep their places themselves.
    names = [name for name, kind in recorded_subscriptions(hand.store, hand.name).items() if kind]
    if (topic := hand.task.find_topic(hand.name)) is not None:
        release_parents(hand.admin, hand.store, topic, hand.layout(), names, fence=hand.guard.require)
    return unshown(hand, hand.layout(), names)


# Inside ---------------------------------------------------------------------------------------------------------------


def _lacks(look: Look, parent: SegmentInfo, names: set[str]) -> set[str] | None:
    """Subscriptions that the segment of a parent's name does not have; None where it stands, and has all."""
    if not _stands(look, parent):
        return names
    return names - {*cursors_on(look.store, SegmentName(look.name, parent.descriptor))} or None


def _stands(look: Look, parent: SegmentInfo) -> bool:
    return look.store.get(SegmentName(look.name, parent.descriptor).managed_ledger_path) is not None
