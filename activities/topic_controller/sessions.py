"""What consumers are told to read: noted in the metadata store, and published (PIP-468, "ConsumerAssignment")."""

from __future__ import annotations

from activities.lifecycle.step import step
from activities.topic_controller.context import ControllerTask, CoordinatorTask
from activities.topic_controller.observe import drained_by_subscription
from activities.topic_controller.publish import KeyedMessage, compact, publish, send
from activities.topic_controller.segments import has_own_layout_topic
from clients.errors import StoreConflict
from models.topic_controller.sessions import AssignmentChanges, ConsumerAssignment, DrainedSegments, assignment_of
from models.topic_controller.state import PreparedChange


@step(CoordinatorTask)
def publish_assignments(task: CoordinatorTask, changes: AssignmentChanges) -> PreparedChange:
    """Note sessions in the metadata store, and tell consumers what they read from now on; harmless when done twice.

    Nothing is told by a layout that does not count any more, as that of a workflow that was reset; the one that counts
    is answered then.

    Raises:
        StoreConflict: the topic is gone.
    """
    record = task.records.read()
    if record is None or record.deleting:
        # The right to tell, which was taken next to the deletion, would be left of the topic.
        task.lease.release()
        raise StoreConflict(f"{task.name} is deleted")
    if record.epoch != changes.epoch:
        return PreparedChange(record=record)
    if changes.layout or not has_own_layout_topic(task):
        publish(task)
    told: list[KeyedMessage] = []
    for one in changes.subscriptions:
        task.records.note_sessions(one.subscription, one.assignments, one.ended, task.each)
        for consumer, segments in one.assignments.items():
            message = assignment_of(task.input.topic, record, changes.generation, segments)
            told.append(_told(one.subscription, consumer, message))
        for consumer in one.ended:
            nothing = assignment_of(task.input.topic, record, changes.generation, ())
            told.append(_told(one.subscription, consumer, nothing.model_copy(update={"evicted": True})))
    # A message without a value takes its key out of the compacted topic.
    told.extend(KeyedMessage(f"assignment/{one}", b"") for one in changes.forgotten)
    if told:
        send(task, lambda: told)
    if changes.compact:
        compact(task)
    return PreparedChange()


@step(ControllerTask, reads_only=True)
def find_drained(task: ControllerTask, subscriptions: tuple[str, ...]) -> DrainedSegments:
    """Ask brokers which sealed segments subscriptions have consumed; none of a topic that is gone."""
    record = task.records.read()
    if record is None:
        return DrainedSegments()
    return DrainedSegments(drained=drained_by_subscription(task.admin, task.name, record, subscriptions, task.each))


def _told(subscription: str, consumer: str, message: ConsumerAssignment) -> KeyedMessage:
    return KeyedMessage(f"assignment/{subscription}/{consumer}", message.model_dump_json(by_alias=True).encode())
