"""DRAIN and VERIFY: what the regular topic still has, and whether the scalable one has all that it must."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from activities.lifecycle.step import step
from activities.pulsar.stored_topics import after_end, stored
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.topic import conversion_of
from activities.scalable_topic.regular_topic import regular_parts, until_next_look, with_types
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions, unreadable
from models.lifecycle.failures import some
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.scalable_topic.results import DrainedTopic, TopicCheck
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SegmentInfo

_CONSUME = "let consumers of these subscriptions run; `proceed` ends the wait"
_LOAD = "see why they cannot; `proceed` ends the wait"


@step(TopicTask, reads_only=True)
def drain(task: TopicTask, until: datetime) -> DrainedTopic:
    """Watch until no durable subscription has old messages left, or the time is up.

    What no broker can load counts as not consumed.
    """
    begun = time.monotonic()
    with task.cluster.store() as store:
        record = task.topic_guard(store, task.name).read()
    types = record.types if record else {}
    # mutant: scalable-topic/what-cannot-be-loaded-is-consumed
    while (left := old_messages(topic := _find(task, types))) or _unloadable(topic):
        _show(task, topic, sum(left.values()))
        if datetime.now(UTC) >= until:
            break
        why, action = _awaited(topic, left)
        task.context.waiting_for(WaitKind.CLIENTS, why, action=action, until=until)
        task.context.pause(until_next_look(time.monotonic() - begun))
    task.context.clear_waiting()
    task.context.clear_progress()
    return DrainedTopic(seconds=round(time.monotonic() - begun, 3), left=left)


@step(TopicTask, reads_only=True)
def verify(task: TopicTask) -> TopicCheck:
    """Complete what came after the flip, and compare the scalable topic with what the regular one had."""
    faults: list[str] = []
    with task.cluster.store() as store:
        guard = task.topic_guard(store, task.name)
        record = guard.take()
        topic = _find(task, record.types)
        scalable = read_scalable(store, task.name)
        if (layout := scalable.layout) is None:
            fault = f"the record of {task.name} is gone: somebody has deleted the scalable topic"
            if scalable.state is not RecordState.ABSENT:
                fault = unreadable(task.name, scalable.state)
            return TopicCheck(faults=(fault,), segments=0, subscriptions=0, pruned=0)
        if topic is not None:
            # Subscriptions that clients have made since, and those that have nothing left in the regular topic now.
            conversion_of(task, store, guard, task.name, record).run()
            if trouble := _unloadable(topic):
                faults.append(f"no broker can load {trouble}: nobody knows what is consumed of it")
            faults += _after_ends(task, topic)
        known = recorded_subscriptions(store, task.name)
        faults += [*layout_faults(layout), *_without_cursors(task, layout, known)]
    there = {segment.legacy_topic_name for segment in layout.segments.values()}
    if topic is None and (named := sorted(filter(None, there))):
        faults.append(f"the regular topic is gone, with what was not consumed; the layout still names {some(named)}")
    pruned = [part for part in regular_parts(topic) if str(part) not in there] if topic else []
    if pruned and (left := old_messages(topic)):
        faults.append(
            f"the layout does not name {some(pruned)}: brokers have pruned them, or they came behind the flip; "
            f"{some(list(left))} have messages there"
        )
    return TopicCheck(faults=tuple(faults), segments=len(layout.active), subscriptions=len(known), pruned=len(pruned))


def _after_ends(task: TopicTask, topic: TopicInventory) -> list[str]:
    """Return what the regular topic has after the position at which it was ended, for each of its partitions."""
    return [
        f"{part} has messages after its end, which no consumer gets (#26680): {after}; read these ledgers with "
        "BookKeeper's own tools before the topic is deleted"
        for part in regular_parts(topic)
        if (info := stored(task.admin, part)) and (after := after_end(info))
    ]


def _find(task: TopicTask, types: Mapping[str, str]) -> TopicInventory | None:
    """Return the regular topic, with types of subscriptions that brokers may have forgotten; None where it is gone."""
    topic = task.find_topic(task.name)
    return topic and with_types(topic, types)


def _awaited(topic: TopicInventory | None, left: dict[str, int]) -> tuple[str, str]:
    """Return what is waited for, and what ends that."""
    if not left:
        return f"brokers to load {_unloadable(topic)}", _LOAD
    told = some([f"{name} ({backlog} messages)" for name, backlog in left.items()])
    return f"old messages to be consumed: {told}", _CONSUME


def _unloadable(topic: TopicInventory | None) -> str:
    """Return what no broker can load, with the reasons; empty for nothing."""
    parts = topic.unloadable if topic else ()
    return some([f"{part.name} ({part.load_error})" for part in parts]) if parts else ""


def _show(task: TopicTask, topic: TopicInventory | None, messages: int) -> None:
    parts = [part.stats for part in topic.parts if part.stats] if topic else []
    drained = sum(
        1 for stats in parts if not any(subscription.msg_backlog for subscription in stats.subscriptions.values())
    )
    detail = f"{messages:,} messages left"
    task.context.progress(ProgressTask.DRAIN, ProgressUnit.SEGMENTS, drained, len(parts), detail=detail)


def old_messages(topic: TopicInventory | None) -> dict[str, int]:
    """Return messages that durable subscriptions have left in a regular topic, by their names."""
    return {one.name: one.backlog for one in topic.durable if one.backlog} if topic else {}


def _without_cursors(task: TopicTask, layout: SegmentLayout, subscriptions: Iterable[str]) -> list[str]:
    """Return subscriptions without a place on a segment that takes new messages, in words."""
    places = [(segment, name) for segment in layout.active for name in subscriptions]

    def fault(place: tuple[SegmentInfo, str]) -> str:
        segment, name = place
        try:
            task.admin.scalable_topics.backlog(task.name, segment.descriptor, name)
        except AdminNotFound:
            return f"{name} has no cursor on segment {segment.descriptor}"
        return ""

    return list(filter(None, task.each(places, fault)))
