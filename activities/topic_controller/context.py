"""Tasks of the steps of a topic's controller: the cluster, the lease of the topic, and its records."""

from __future__ import annotations

import time

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.topic_controller.lease import LeaderLease, require_active_store
from activities.topic_controller.records import Records, controller_path, coordinator_path
from clients.cas.store import CasStore
from clients.errors import ClaimHeld, NoServer, StoreConflict, Superseded
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminDenied
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailureKind
from models.topic_controller.input import KIND, ControllerInput, claim_holder


class ObserverTask(StepTask[ControllerInput]):
    """An attempt that only reads from the topic's brokers. Arguments as in `StepTask`."""

    kind = KIND
    input_type = ControllerInput

    def __init__(
        self, runtime: Runtime, execution: Execution[ControllerInput], attempt: Attempt, context: ActivityContext
    ) -> None:
        super().__init__(runtime, execution, attempt, context)
        self.name = TopicName.parse(self.input.topic)
        self.cluster = self.open.enter_context(PulsarCluster(runtime, self.input, context))

    @property
    def admin(self) -> PulsarAdminReader:
        """The cluster's admin interface, for reading."""
        return self.cluster.admin


class ControllerTask(ObserverTask):
    """An attempt of the controller of a topic; it may read everything, and fences off no other.

    Raises:
        StoreError: the metadata store cannot be opened.
    """

    def __init__(
        self, runtime: Runtime, execution: Execution[ControllerInput], attempt: Attempt, context: ActivityContext
    ) -> None:
        if attempt.workflow_id == execution.input.workflow_id:
            attempt = attempt._replace(workflow_id=claim_holder(execution.input.topic))
        super().__init__(runtime, execution, attempt, context)
        self._service_url = ""
        self.metadata: CasStore = self.open.enter_context(self.cluster.store())
        self.lease = LeaderLease(self.metadata, attempt, path=self.lease_path)
        self._admin = self.cluster.admin.guarded(self.require)
        self.records = Records(self.metadata, self.name, self.lease)

    @property
    def admin(self) -> PulsarAdmin:
        """The cluster's admin interface; it checks the lease right before each change, as brokers know no versions."""
        return self._admin

    @property
    def lease_path(self) -> str:
        """Node of the lease under which this attempt writes."""
        return controller_path(self.name)

    @classmethod
    def failure(cls, error: Exception) -> Exception:
        """Return the error with which the activity fails: a lost lease is not retried, and differs from a conflict."""
        if isinstance(error, (Superseded, ClaimHeld)):
            return ApplicationError(str(error), type=FailureKind.NOT_LEADER, non_retryable=True)
        return error

    def take_lease(self) -> None:
        """Take the lease; every earlier attempt that holds it can no longer write.

        Raises:
            Superseded: a newer attempt or run has it.
            ClaimHeld: another workflow has it.
            StoreConflict: brokers control the topic themselves, or the metadata have moved.
            StoreContention: the metadata are being moved.
            NoServer: no broker is registered: their metadata may be on the move offline.
        """
        try:
            self.service_url()
        except NoServer:
            # When the sessions of brokers in a store that they have left end, none is registered in it.
            require_active_store(self.metadata)
            raise
        self._require_ours()
        self.lease.take()

    def require_cluster(self) -> None:
        """Check that the brokers belong to the cluster of the input; called before the lease is taken.

        A controller of the topic under another name of the cluster has another workflow id, and would lose its topic.

        Raises:
            StoreConflict: they belong to another cluster.
        """
        try:
            cluster = self.admin.brokers.runtime_configuration().get("clusterName")
        except AdminDenied:
            # A controller needs no permission to read this.
            return
        if cluster != self.input.cluster:  # mutant: topic-controller/leads-under-another-cluster-name
            raise StoreConflict(
                f"{', '.join(self.input.admin_urls)} is the cluster {cluster!r}, and not {self.input.cluster!r}: "
                "correct cluster, or admin_urls and metadata_url"
            )

    def service_url(self) -> str:
        """Return the service URL of the brokers; read once in an attempt, since it takes a new store session."""
        self._service_url = self._service_url or self.cluster.service_url()
        return self._service_url

    def require(self) -> None:
        """Check the lease; called right before each change."""
        self.lease.require()

    def await_lost_attempts(self) -> bool:
        """Wait until no late request of an abandoned attempt can arrive; return whether there was such an attempt.

        Before what it was about to delete or to end may be made again.
        """
        age = time.time() - self.lease.require().lost_at_ms / 1000
        # Clocks of workers differ.
        return self.cluster.await_late_requests(max(0.0, age))

    def _require_ours(self) -> None:
        state = read_scalable(self.metadata, self.name).state
        if state is RecordState.EMPTY:
            raise StoreConflict(
                f"{self.name} has a record without a value at {self.name.scalable_path}: a broker of Pulsar 5 that "
                "reported load has made it. Remove it with ScalableOperation, operation clear_empty"
            )
        if state is not RecordState.ABSENT:
            raise StoreConflict(
                f"{self.name} has a record at {self.name.scalable_path}: brokers of Pulsar 5 control it themselves. "
                "Use ScalableOperation (pulsar-migrate start scalable-operation) for it; or, if a client has made "
                f"it by looking up topic://{self.name.local_path} next to a topic of this controller, delete it: curl "
                f"-X DELETE http://BROKER:8080/admin/v2/scalable/{self.name.local_path}"
            )


class LeaderTask(ControllerTask):
    """An attempt that changes segments, layout and subscriptions; only one at a time."""

    def begin(self) -> None:
        """Take the lease; raises as `take_lease`."""
        self.take_lease()


class CoordinatorTask(ControllerTask):
    """An attempt that publishes assignments of consumers; it does not wait for a long split."""

    @property
    def lease_path(self) -> str:
        """Node of the lease under which this attempt writes."""
        return coordinator_path(self.name)

    def begin(self) -> None:
        """Take the lease; raises as `take_lease`."""
        self.take_lease()
