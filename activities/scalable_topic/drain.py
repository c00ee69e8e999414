"""DRAIN and VERIFY: wait for old messages to be consumed, and check that the scalable topic is complete."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from activities.lifecycle.step import step
from activities.pulsar.stored_topics import after_end, stored
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.topic import conversion_of
from activities.scalable_topic.regular_topic import next_poll_delay, regular_parts, with_types
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions, unreadable
from models.lifecycle.failures import summarize
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.scalable_topic.results import DrainedTopic, TopicCheck
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.segments.segment import SegmentInfo

_CONSUME = "let consumers of these subscriptions run; `proceed` ends the wait"
_LOAD = "check why they cannot; `proceed` ends the wait"


@step(TopicTask, reads_only=True)
def drain(task: TopicTask, until: datetime) -> DrainedTopic:
    """Watch until all durable subscriptions have consumed the old messages, or the time is up.

    A topic that no broker can load counts as not consumed.
    """
    begun = time.monotonic()
    with task.cluster.store() as store:
        record = task.topic_guard(store, task.name).read()
    types = record.types if record else {}
    # mutant: scalable-topic/what-cannot-be-loaded-is-consumed
    while (backlogs := old_messages(topic := _find(task, types))) or _unloadable(topic):
        _show(task, topic, sum(backlogs.values()))
        if task.context.server_time >= until:
            break
        why, action = _awaited(topic, backlogs)
        task.context.waiting_for(WaitKind.CLIENTS, why, action=action, until=until)
        task.context.pause(next_poll_delay(time.monotonic() - begun))
    task.context.clear_waiting()
    task.context.clear_progress()
    return DrainedTopic(seconds=round(time.monotonic() - begun, 3), backlogs=backlogs)


@step(TopicTask, reads_only=True)
def verify(task: TopicTask) -> TopicCheck:
    """Complete what clients created after the flip, and compare the scalable topic with the regular one."""
    faults: list[str] = []
    with task.cluster.store() as store:
        guard = task.topic_guard(store, task.name)
        record = guard.take()
        topic = _find(task, record.types)
        scalable = read_scalable(store, task.name)
        if (layout := scalable.layout) is None:
            fault = f"the record of {task.name} is gone: the scalable topic was deleted"
            if scalable.state is not RecordState.ABSENT:
                fault = unreadable(task.name, scalable.state)
            return TopicCheck(faults=(fault,), segments=0, subscriptions=0, pruned=0)
        if topic is not None:
            # Subscriptions that clients created since, and those that have consumed the regular topic now.
            conversion_of(task, store, guard, task.name, record).run()
            if trouble := _unloadable(topic):
                faults.append(f"no broker can load {trouble}: what is consumed of it is unknown")
            faults += _after_ends(task, topic)
        subscriptions = recorded_subscriptions(store, task.name)
        faults += [*layout_faults(layout), *_without_cursors(task, layout, subscriptions)]
    there = {segment.legacy_topic_name for segment in layout.segments.values()}
    if topic is None and (named := sorted(filter(None, there))):
        faults.append(
            f"the regular topic is gone with its unconsumed messages; the layout still names {summarize(named)}"
        )
    pruned = [partition for partition in regular_parts(topic) if str(partition) not in there] if topic else []
    if pruned and (backlogs := old_messages(topic)):
        faults.append(
            f"the layout does not name {summarize(pruned)}: brokers have pruned them, or they were created after the "
            f"flip; {summarize(list(backlogs))} have messages there"
        )
    return TopicCheck(
        faults=tuple(faults), segments=len(layout.active), subscriptions=len(subscriptions), pruned=len(pruned)
    )


def _after_ends(task: TopicTask, topic: TopicInventory) -> list[str]:
    """Return a description of the messages after the termination of each partition of the regular topic."""
    return [
        f"{partition} has messages after its end, which no consumer gets (#26680): {after}; read these ledgers with "
        "BookKeeper's own tools before the topic is deleted"
        for partition in regular_parts(topic)
        if (info := stored(task.admin, partition)) and (after := after_end(info))
    ]


def _find(task: TopicTask, types: Mapping[str, str]) -> TopicInventory | None:
    """Return the regular topic, with types of subscriptions that brokers may have forgotten; None where it is gone."""
    topic = task.find_topic(task.name)
    return topic and with_types(topic, types)


def _awaited(topic: TopicInventory | None, backlogs: dict[str, int]) -> tuple[str, str]:
    """Return what the step waits for, and what the operator can do."""
    if not backlogs:
        return f"brokers to load {_unloadable(topic)}", _LOAD
    descriptions = summarize([f"{name} ({backlog} messages)" for name, backlog in backlogs.items()])
    return f"old messages to be consumed: {descriptions}", _CONSUME


def _unloadable(topic: TopicInventory | None) -> str:
    """Return the partitions that no broker can load, with the reasons; empty if there are none."""
    parts = topic.unloadable if topic else ()
    return summarize([f"{partition.name} ({partition.load_error})" for partition in parts]) if parts else ""


def _show(task: TopicTask, topic: TopicInventory | None, messages: int) -> None:
    parts = [partition.stats for partition in topic.parts if partition.stats] if topic else []
    drained = sum(
        1 for stats in parts if not any(subscription.msg_backlog for subscription in stats.subscriptions.values())
    )
    detail = f"{messages:,} messages left"
    task.context.progress(ProgressTask.DRAIN, ProgressUnit.SEGMENTS, drained, len(parts), detail=detail)


def old_messages(topic: TopicInventory | None) -> dict[str, int]:
    """Return the number of unconsumed messages of each durable subscription of a regular topic."""
    return (
        {subscription.name: subscription.backlog for subscription in topic.durable if subscription.backlog}
        if topic
        else {}
    )


def _without_cursors(task: TopicTask, layout: SegmentLayout, subscriptions: Iterable[str]) -> list[str]:
    """Return a description of each subscription that lacks a cursor on a segment for new messages."""
    pairs = [(segment, name) for segment in layout.active for name in subscriptions]

    def fault(pair: tuple[SegmentInfo, str]) -> str:
        segment, name = pair
        try:
            task.admin.scalable_topics.backlog(task.name, segment.descriptor, name)
        except AdminNotFound:
            return f"{name} has no cursor on segment {segment.descriptor}"
        return ""

    return list(filter(None, task.each(pairs, fault)))
