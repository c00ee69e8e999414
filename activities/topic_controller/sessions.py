"""Assignments of consumers: stored in the metadata store, and published (PIP-468, "ConsumerAssignment")."""

from __future__ import annotations

from activities.lifecycle.step import step
from activities.topic_controller.context import ControllerTask, CoordinatorTask
from activities.topic_controller.observe import drained_by_subscription
from activities.topic_controller.publish import KeyedMessage, compact, publish, require_epoch, send
from activities.topic_controller.segments import has_own_layout_topic
from clients.errors import StoreConflict
from models.topic_controller.sessions import AssignmentChanges, ConsumerAssignment, DrainedSegments, assignment_of
from models.topic_controller.state import PreparedChange


@step(CoordinatorTask)
def publish_assignments(task: CoordinatorTask, changes: AssignmentChanges) -> PreparedChange:
    """Store sessions in the metadata store, and publish new assignments to consumers; idempotent.

    If the layout has changed, for example since Temporal reset the workflow, nothing is published, and the result is
    the current layout.

    Raises:
        StoreConflict: the topic is deleted, or an old record was restored.
    """
    record = task.records.read()
    if record is None or record.deleting:
        # This lease was taken in parallel with the deletion, which does not remove it.
        task.lease.release()
        raise StoreConflict(f"{task.name} is deleted")
    # Not a result: the run keeps its newer layout, and would ask again at once.
    require_epoch(task, record, changes.epoch)  # mutant: topic-controller/assigns-from-an-older-record
    if record.epoch != changes.epoch:
        return PreparedChange(record=record)
    if changes.layout or not has_own_layout_topic(task):
        publish(task)
    messages: list[KeyedMessage] = []
    for change in changes.subscriptions:
        subscription = change.subscription
        task.records.note_sessions(subscription, change.assignments, change.ended, task.each)
        for consumer, segments in change.assignments.items():
            assignment = assignment_of(task.input.topic, record, changes.generation, segments)
            messages.append(_message(subscription, consumer, assignment))
        for consumer in change.ended:
            nothing = assignment_of(task.input.topic, record, changes.generation, ())
            messages.append(_message(subscription, consumer, nothing.model_copy(update={"evicted": True})))
    # A message without a value removes its key from the compacted topic.
    messages.extend(KeyedMessage(f"assignment/{consumer}", b"") for consumer in changes.forgotten)
    if messages:
        send(task, lambda: messages)
    if changes.compact:
        compact(task)
    return PreparedChange()


@step(ControllerTask, reads_only=True)
def find_drained(task: ControllerTask, subscriptions: tuple[str, ...]) -> DrainedSegments:
    """Return the sealed segments that subscriptions have consumed, as brokers report them; none for a deleted topic."""
    record = task.records.read()
    if record is None:
        return DrainedSegments()
    return DrainedSegments(drained=drained_by_subscription(task.admin, task.name, record, subscriptions, task.each))


def _message(subscription: str, consumer: str, assignment: ConsumerAssignment) -> KeyedMessage:
    return KeyedMessage(f"assignment/{subscription}/{consumer}", assignment.model_dump_json(by_alias=True).encode())
