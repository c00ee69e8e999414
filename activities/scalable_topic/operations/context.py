"""What a verb gets for one topic: to look at it, or to change it."""

from __future__ import annotations

from dataclasses import dataclass

from activities.pulsar.namespace_guard import RecordGuard
from activities.scalable_topic.context import ClusterTask
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreNotFound, StoreUnsupported
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.names import TopicName, encoded
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, unreadable
from models.scalable_topic.operation_claims import OperatedTopic
from models.scalable_topic.operation_input import KIND, ScalableOperationInput
from models.scalable_topic.operation_results import TopicOutcome, Verdict
from models.segments.layout import SegmentLayout


class OperationTask(ClusterTask[ScalableOperationInput]):
    """One attempt's view of an operation."""

    kind = KIND
    input_type = ScalableOperationInput


@dataclass(frozen=True)
class Look:
    """One topic, to be looked at.

    Attributes:
        task: of the operation.
        store: the brokers' metadata store.
        name: of the topic.
    """

    task: OperationTask
    store: CasReader
    name: TopicName

    @property
    def reader(self) -> PulsarAdminReader:
        """The cluster's admin interface, for reading."""
        return self.task.admin

    def layout(self) -> SegmentLayout:
        """The layout as it stands.

        Raises:
            StoreNotFound: the topic is not scalable.
            StoreConflict: its record is empty or broken, or the topic is being deleted.
            StoreUnsupported: brokers would take another topic for it.
        """
        if encoded(self.name.topic) != self.name.topic:
            raise StoreUnsupported("brokers do not decode its name in requests for scalable topics")
        record = read_scalable(self.store, self.name)
        match record.state:
            case RecordState.ABSENT:
                raise StoreNotFound("there is no scalable topic of this name")
            case RecordState.EMPTY:
                raise StoreConflict("its record has no value, and brokers fail; clear_empty removes it")
            case RecordState.BROKEN:
                raise StoreConflict(unreadable(self.name, record.state))
            case RecordState.GOOD:
                assert record.layout is not None
                if record.layout.deleted:
                    raise StoreConflict("brokers are deleting it; delete it again if that does not end")
                return record.layout

    def outcome(self, verdict: Verdict, told: str = "", **more: int) -> TopicOutcome:
        """What became of the topic."""
        return TopicOutcome(topic=local(self.name), verdict=verdict, told=told, **more)


@dataclass(frozen=True)
class Hand(Look):
    """One topic, to be changed.

    Attributes:
        store: the brokers' metadata store.
        guard: the right to change the topic; asked before each change.
    """

    store: CasStore
    guard: RecordGuard[OperatedTopic]

    @property
    def admin(self) -> PulsarAdmin:
        """The cluster's admin interface."""
        return self.task.admin

    def noted(self) -> OperatedTopic:
        """What this operation has noted of the topic.

        Raises:
            ClaimHeld, Superseded: somebody else is in charge.
        """
        return self.guard.require()


def local(name: TopicName) -> str:
    """`tenant/namespace/topic`."""
    return f"{name.namespace_path}/{name.topic}"
