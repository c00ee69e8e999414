"""A controlled topic as a whole: opened or created, its subscriptions, its statistics, and its end."""

from __future__ import annotations

import time

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.publish import publish
from activities.topic_controller.segments import delete_topic, make_layout_topic, make_segments
from clients.errors import StoreConflict, StoreError
from clients.pulsar.admin.errors import AdminNotFound
from models.segment import SegmentInfo
from models.topic_controller.input import Deletion, SubscriptionRequest
from models.topic_controller.record import ControlledLayout
from models.topic_controller.state import Opened, SegmentStats, TopicReport


def open_topic(task: ControllerTask) -> Opened:
    """Find the topic, or create it; what an earlier attempt did not make is made.

    Raises:
        StoreConflict: there is an ordinary topic of this name, or the topic is being deleted.
    """
    record = task.records.read()
    if record is None:
        _require_free(task)
        now = time.time_ns() // 1_000_000
        record = task.records.create(ControlledLayout.created(task.input.segments, task.input.properties, now))
    subscriptions = task.records.subscriptions()
    if not record.deleting:
        make_layout_topic(task)
        make_segments(task, record.active, sorted(subscriptions))
        publish(task)
    return Opened(record=record, subscriptions=subscriptions)


def subscribe(task: ControllerTask, request: SubscriptionRequest) -> None:
    """Give a subscription a place at the begin of each segment that takes messages, and note it.

    Raises:
        StoreConflict: it is there, and is consumed in another way.
    """
    record = _record(task)
    task.records.register(request.name, request.kind)
    make_segments(task, record.active, [request.name])


def unsubscribe(task: ControllerTask, name: str) -> None:
    """Delete a subscription with its places on all segments; harmless where it is gone."""
    task.records.forget(name)

    def leave(segment: SegmentInfo) -> None:
        try:
            task.admin.subscriptions.delete(segment_topic(task.name, segment.descriptor), name, force=True)
        except AdminNotFound:
            # The segment, or the place on it, is gone.
            return

    task.each(_record(task).segments.values(), leave)


def delete(task: ControllerTask, deletion: Deletion) -> None:
    """Delete the topic with all that it holds; another attempt goes on where one died.

    Raises:
        StoreConflict: clients are connected, and it is not forced.
    """
    record = task.records.read()
    if record is not None:
        record = task.records.change(lambda found: found.model_copy(update={"deleting": True}))
        # Also those of a change that was under way.
        made = record.pending.made(record) if record.pending else []
        if not deletion.force:
            _require_idle(task, record)
        publish(task)
        names = [segment_topic(task.name, one.descriptor) for one in (*record.segments.values(), *made)]
        task.each(names, lambda name: delete_topic(task, name))
        delete_topic(task, layout_topic(task.name))
    task.records.forget_all()


def report(task: ControllerTask) -> TopicReport:
    """How the topic is, segment by segment, as the brokers see it that have them."""
    record = _record(task)
    found = task.each(record.segments.values(), lambda one: _stats(task, one))
    backlog: dict[str, int] = dict.fromkeys(task.records.subscriptions(), 0)
    for one in found:
        for name, messages in one.backlog.items():
            backlog[name] = backlog.get(name, 0) + messages
    return TopicReport(epoch=record.epoch, segments=tuple(found), subscriptions=backlog)


def _stats(task: ControllerTask, segment: SegmentInfo) -> SegmentStats:
    known = {"segment": segment.segment_id, "descriptor": segment.descriptor, "active": segment.active}
    try:
        stats = task.admin.topics.stats(segment_topic(task.name, segment.descriptor))
    except StoreError as error:
        return SegmentStats.model_validate({**known, "trouble": str(error)})
    durable = {name: one for name, one in stats.subscriptions.items() if one.is_durable}
    return SegmentStats.model_validate(
        {
            **known,
            "messages_in": stats.msg_rate_in,
            "bytes_in": stats.msg_throughput_in,
            "stored_bytes": stats.storage_size,
            "producers": len(stats.publishers),
            "backlog": {name: one.msg_backlog for name, one in durable.items()},
            "consumers": {name: len(one.consumers) for name, one in durable.items()},
        }
    )


def _record(task: ControllerTask) -> ControlledLayout:
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted, or was never created")
    return record


def _require_free(task: ControllerTask) -> None:
    """Clients of an ordinary topic of this name would see another one than clients of the scalable one."""
    for look in (task.admin.topics.partitions, task.admin.topics.internal_stats):
        try:
            look(task.name)
        except AdminNotFound:
            continue
        raise StoreConflict(f"{task.name} is an ordinary topic; delete it first, or give the scalable one another name")


def _require_idle(task: ControllerTask, record: ControlledLayout) -> None:
    for one in task.each(record.segments.values(), lambda segment: _stats(task, segment)):
        if one.producers or any(one.consumers.values()):
            raise StoreConflict(
                f"segment {one.descriptor} of {task.name} has {one.producers} producers and consumers of "
                f"{', '.join(name for name, count in one.consumers.items() if count) or 'nothing'}; end them, or force"
            )
