"""What consumers are told to read: noted in the metadata store, and published (PIP-468, "ConsumerAssignment")."""

from __future__ import annotations

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.publish import Told, send
from clients.errors import StoreConflict
from models.topic_controller.sessions import AssignmentChanges, ConsumerAssignment, assignment_of


def tell(task: ControllerTask, changes: AssignmentChanges) -> None:
    """Note sessions in the metadata store, and tell consumers what they read from now on; harmless when done twice.

    Raises:
        StoreConflict: the topic is gone.
    """
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted")
    told: list[Told] = []
    for one in changes.subscriptions:
        for consumer, segments in one.assignments.items():
            task.records.keep_session(one.subscription, consumer, segments)
            message = assignment_of(task.input.topic, record, changes.generation, segments)
            told.append(_told(one.subscription, consumer, message))
        for consumer in one.ended:
            task.records.end_session(one.subscription, consumer)
            nothing = assignment_of(task.input.topic, record, changes.generation, ())
            told.append(_told(one.subscription, consumer, nothing.model_copy(update={"evicted": True})))
    send(task, lambda: told)


def _told(subscription: str, consumer: str, message: ConsumerAssignment) -> Told:
    return Told(f"assignment/{subscription}/{consumer}", message.model_dump_json(by_alias=True).encode())
