"""The verbs `find_stranded` and `repair_stranded`: messages of a regular topic that the scalable one does not name.

A layout that was written by hand, or from a copy of before, may lack regular topics whose messages are not consumed.
No V5 client asks these. Brokers of 5.0.1 were not seen to make such a layout.
"""

from __future__ import annotations

from typing import NamedTuple

from activities.lifecycle.topic_inventory import TopicInventory
from activities.scalable_topic.operations.context import Hand, Look
from activities.scalable_topic.operations.subscriptions import Secured, secure
from activities.scalable_topic.regular import is_terminated, regular_parts
from clients.cas.store import retry
from clients.errors import StoreConflict
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import (
    controller_of,
    read_scalable,
    set_while_none_leads,
)
from models.lifecycle.failures import some
from models.scalable_topic.operation_results import TopicOutcome, Verdict
from models.segment_layout import SegmentLayout
from models.segment_layout_check import layout_faults
from models.segment_repair import with_parents


class Stranded(NamedTuple):
    """What a layout does not name.

    Attributes:
        topics: the regular topic's partitions in their order, or itself.
        messages: that subscriptions have not consumed, by the place of the partition.
        subscriptions: which have them.
    """

    topics: list[TopicName]
    messages: dict[int, int]
    subscriptions: list[str]

    def __str__(self) -> str:
        named = some([str(self.topics[number]) for number in self.messages])
        return f"{sum(self.messages.values())} messages of {some(self.subscriptions)} in {named}"


def find_stranded(look: Look) -> TopicOutcome:
    """What messages the topic does not name any more."""
    stranded = _stranded(look, look.layout())
    if not stranded.messages:
        return look.outcome(Verdict.UNCHANGED, "the layout names all regular topics with messages")
    told = f"the layout does not name {stranded}: V5 clients never get them. Cure: repair_stranded"
    return look.outcome(Verdict.FOUND, told, messages=sum(stranded.messages.values()))


def look_at_repair(look: Look) -> TopicOutcome:
    """What would be named again."""
    layout = look.layout()
    stranded = _stranded(look, layout)
    if not stranded.messages:
        return look.outcome(Verdict.UNCHANGED, "the layout names all regular topics with messages")
    _require_no_controller(look)
    with_parents(layout, list(map(str, stranded.topics)), stranded.messages)
    messages = sum(stranded.messages.values())
    return look.outcome(Verdict.CHANGED, f"the layout would name {stranded} again", messages=messages)


def repair_stranded(hand: Hand) -> TopicOutcome:
    """Name regular topics with messages again, and record their subscriptions, before a broker looks.

    Raises:
        StoreConflict: a broker leads the topic, and would not see it; or the layout has faults afterwards.
        LayoutError: the layout does not come from these regular topics.
    """
    stranded = _stranded(hand, hand.layout())
    if not stranded.messages and not hand.noted().segments:
        return hand.outcome(Verdict.UNCHANGED, "the layout names all regular topics with messages")
    if stranded.messages:
        _insert(hand, stranded)
    layout = hand.layout()
    # A broker that is asked leads the topic from now on, with the layout that it reads now.
    done = secure(hand, layout.active)
    return _checked(hand, done)


# Inside ---------------------------------------------------------------------------------------------------------------


def _stranded(look: Look, layout: SegmentLayout) -> Stranded:
    topic = look.task.find_topic(look.name)
    if topic is None:
        return Stranded([], {}, [])
    named = {one.legacy_topic_name for one in layout.segments.values()}
    topics = regular_parts(topic)
    left = {number: _left(topic, part) for number, part in enumerate(topics) if str(part) not in named}
    # One that takes messages is another topic of the same name, whose clients know it.
    lost = {number: by for number, by in left.items() if by and is_terminated(look.reader, topics[number])}
    subscriptions = sorted({name for by in lost.values() for name in by})
    return Stranded(topics, {number: sum(by.values()) for number, by in lost.items()}, subscriptions)


def _left(topic: TopicInventory, part: TopicName) -> dict[str, int]:
    """Messages that durable subscriptions have not consumed, of one partition."""
    found = next((one.stats for one in topic.parts if one.name == part), None)
    subscriptions = found.subscriptions.items() if found else ()
    return {name: one.msg_backlog for name, one in subscriptions if one.is_durable and one.msg_backlog}


def _require_no_controller(look: Look) -> None:
    if leader := controller_of(look.store, look.name):
        raise StoreConflict(
            f"{leader} leads it, and goes on with the layout that it knows. Restart that broker while no stream "
            "consumer is connected, so that none leads the topic, and repair it then"
        )


def _insert(hand: Hand, stranded: Stranded) -> None:
    topics = list(map(str, stranded.topics))

    def insert() -> None:
        record = read_scalable(hand.store, hand.name)
        if record.layout is None:
            raise StoreConflict(f"the record of {hand.name} is {record.state} now")
        wanted = with_parents(record.layout, topics, stranded.messages)
        hand.guard.note(segments=tuple(wanted.segments[number] for number in stranded.messages))
        _require_no_controller(hand)
        # A broker that has read the record just before, and leads from right after on, knows none of these parents
        # until it changes the layout itself: it neither drops them nor uses up their ids.
        set_while_none_leads(hand.store, hand.name, wanted, record.version)

    retry(insert, hand.name.scalable_path)


def _checked(hand: Hand, done: Secured) -> TopicOutcome:
    layout = hand.layout()
    if faults := layout_faults(layout):
        raise StoreConflict(f"the layout is not as it has to be: {'; '.join(faults)}")
    if (left := _stranded(hand, layout)).messages:
        raise StoreConflict(f"the layout does not name {left}: a broker has dropped them again")
    parents = hand.noted().segments
    missing = [one.descriptor for one in parents if one.segment_id not in layout.segments]
    if missing:
        raise StoreConflict(f"segments {', '.join(missing)} are gone again: a broker has dropped them")
    topic = hand.task.find_topic(hand.name)
    by_part = [_left(topic, TopicName.parse(one.legacy_topic_name or "")) for one in parents] if topic else []
    messages = sum(sum(left.values()) for left in by_part)
    named = some([one.legacy_topic_name for one in parents])
    return hand.outcome(
        Verdict.CHANGED,
        f"the layout names {named} again, with {messages} messages",
        registered=done.registered,
        healed=done.healed,
        messages=messages,
    )
