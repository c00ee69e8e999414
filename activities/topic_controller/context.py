"""What the steps of a topic's controller share: the cluster, the right to lead the topic, and its records."""

from __future__ import annotations

import time
from enum import Enum, auto

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.topic_controller.fence import LeadKeeper
from activities.topic_controller.records import Records, controller_path, coordinator_path
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminDenied
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import Attempt
from models.topic_controller.input import ControllerInput, claim_holder


class Role(Enum):
    """What an attempt may change.

    LEADER: segments, layout and subscriptions; one step at a time.
    COORDINATOR: what consumers are told to read, also while a split takes long.
    READER: nothing, and stops nobody.
    """

    LEADER = auto()
    COORDINATOR = auto()
    READER = auto()


class ControllerTask(PulsarCluster[ControllerInput]):
    """One attempt of the controller of a topic; a context manager. `take` says what else it can raise.

    Args:
        runtime: what the process shares.
        input: of the workflow.
        attempt: which attempt of it this is.
        context: of the activity.
    """

    def __init__(self, runtime: Runtime, input: ControllerInput, attempt: Attempt, context: ActivityContext) -> None:
        if attempt.workflow_id == input.workflow_id:
            attempt = attempt._replace(workflow_id=claim_holder(input.topic))
        super().__init__(runtime, input, attempt, context)
        self.name = TopicName.parse(input.topic)
        self._service_url = ""
        self.metadata: CasStore = self._open.enter_context(self.store())
        self.keeper = LeadKeeper(self.metadata, attempt, path=controller_path(self.name))
        # Asked right before each change, since brokers know no versions.
        self.admin = self.admin.guarded(self.require)
        self.records = Records(self.metadata, self.name, self.keeper)

    def take(self, role: Role) -> None:
        """Take the right to do something, beside whoever has another role; every earlier attempt in it stops.

        Raises:
            Superseded: a newer attempt or run has it.
            ClaimHeld: another workflow has it.
            StoreConflict: brokers control the topic themselves, or the metadata have moved.
            StoreContention: the metadata are being moved.
            NoServer: no broker is registered: their metadata may be on the move offline.
        """
        if role is Role.READER:
            return
        self.service_url()
        self._require_ours()
        if role is Role.COORDINATOR:
            self.keeper = LeadKeeper(self.metadata, self.attempt, path=coordinator_path(self.name))
            self.records = Records(self.metadata, self.name, self.keeper)
        self.keeper.take()

    def require_cluster(self) -> None:
        """Check that the brokers are of the cluster that the input names, before the right to lead is taken.

        A controller of the topic under another name of the cluster has another workflow id, and would lose its topic.

        Raises:
            StoreConflict: they are of another one.
        """
        try:
            cluster = self.admin.brokers.runtime_configuration().get("clusterName")
        except AdminDenied:
            # Leading a topic needs no right to read this.
            return
        if cluster != self.input.cluster:
            raise StoreConflict(
                f"{', '.join(self.input.admin_urls)} is the cluster {cluster!r}, and not {self.input.cluster!r}: "
                "correct cluster, or admin_urls and metadata_url"
            )

    def service_url(self) -> str:
        """See `PulsarCluster`; asked once in an attempt, since each look needs a session of its own."""
        self._service_url = self._service_url or super().service_url()
        return self._service_url

    def require(self) -> None:
        """The fence, asked right before each change."""
        self.keeper.require()

    def await_lost_attempts(self) -> bool:
        """Wait until nothing of an attempt that was given up can arrive any more; whether there was such an attempt.

        Before what it was about to delete or to end may be made anew.
        """
        age = time.time() - self.keeper.require().lost_at_ms / 1000
        # Clocks of workers differ.
        return self.await_late_requests(max(0.0, age))

    def _require_ours(self) -> None:
        state = read_scalable(self.metadata, self.name).state
        if state is RecordState.EMPTY:
            raise StoreConflict(
                f"{self.name} has a record without a value at {self.name.scalable_path}: a broker of Pulsar 5 that "
                "reported load has made it. Remove it with ScalableTopicOperation, operation clear_empty"
            )
        if state is not RecordState.ABSENT:
            raise StoreConflict(
                f"{self.name} has a record at {self.name.scalable_path}: brokers of Pulsar 5 control it themselves. "
                "Use ScalableTopicOperation (pulsar-migrate start scalable-operation) for it; or, if a client has made "
                f"it by looking up topic://{self.name.local_path} next to a topic of this controller, delete it: curl "
                f"-X DELETE http://BROKER:8080/admin/v2/scalable/{self.name.local_path}"
            )
