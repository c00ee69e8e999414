"""Context that the steps about scalable topics share: the cluster, the claims and the current regular topic."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
from activities.pulsar.coverage import ResultT, covered
from activities.pulsar.credentials_check import unusable_credentials
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.namespace_guard import NamespaceGuard, RecordGuard
from activities.pulsar.pulsar_cluster import PulsarCluster
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition, TopicReader
from activities.scalable_topic.regular_topic import GRACE
from clients.cas.claims import ClaimKeeper, held_by
from clients.cas.store import CasStore
from clients.errors import ClaimHeld, StoreNotFound, StoreUnreachable, Superseded
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError, AdminNotFound
from clients.pulsar.names import TopicName
from models.lifecycle.claim import Attempt, Claim
from models.lifecycle.execution import Execution
from models.lifecycle.failures import Blocker
from models.lifecycle.status import WaitKind
from models.scalable_topic.claims import (
    GuardedNamespace,
    OperatedTopic,
    TopicClaim,
    is_ours,
    operation_record,
    topic_record,
)
from models.scalable_topic.input import KIND as TOPIC_KIND
from models.scalable_topic.input import ClusterInput, ScalableTopicInput
from models.scalable_topic.namespace_input import KIND as NAMESPACE_KIND
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.store_url import StoreUrl

InputT_co = TypeVar("InputT_co", bound=ClusterInput, covariant=True)

_POLL_INTERVAL = 2.0
_RPC_TIMEOUT = 10.0


class Owners:
    """Asks Temporal whether the workflows that claims name still run; for threads.

    Args:
        runtime: of the worker.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def is_open(self, claim: Claim, url: StoreUrl) -> bool:
        """Return whether the run that holds a claim still runs.

        A run whose workflow Temporal does not know may run under another Temporal: no run takes it over.

        Args:
            claim: of another migration.
            url: the store that has it, for the message.

        Raises:
            ClaimHeld: it is of another kind of migration, or Temporal does not know its workflow.
            StoreUnreachable: Temporal does not answer.
        """
        if is_ours(claim):
            try:
                answer = self._runtime.ask(self._ask(claim), _RPC_TIMEOUT)
            except (RPCError, TimeoutError) as error:
                raise StoreUnreachable(f"Temporal does not say whether {claim.workflow_id} runs: {error}") from error
            if answer is not None:
                return answer
        raise ClaimHeld(held_by(claim, url), workflow_id=claim.workflow_id, run_id=claim.run_id, server=str(url))

    async def _ask(self, claim: Claim) -> bool | None:
        try:
            description = await self._runtime.client.get_workflow_handle(claim.workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        first = description.raw_description.workflow_execution_info.first_run_id
        return description.status is WorkflowExecutionStatus.RUNNING and first == claim.run_id


class ClusterTask(StepTask[InputT_co]):
    """One attempt's view of a cluster whose topics are, or become, scalable. Arguments as in `StepTask`.

    Attributes:
        cluster: the cluster.
        owners: reports whether other migrations still run.
    """

    prefix = "scalable_topic"

    def __init__(
        self, runtime: Runtime, execution: Execution[InputT_co], attempt: Attempt, context: ActivityContext
    ) -> None:
        super().__init__(runtime, execution, attempt, context)
        self.cluster = self.open.enter_context(PulsarCluster(runtime, self.input, context))
        self.owners = Owners(runtime)
        self._ended: set[str] = set()
        self._running: dict[str, bool] = {}

    @property
    def admin(self) -> PulsarAdmin:
        """The cluster's admin interface."""
        return self.cluster.admin

    def unusable_credentials(self) -> list[Blocker]:
        """Return a blocker if this worker lacks the credentials of the input, or cannot use a file of theirs."""
        return unusable_credentials(self.runtime, [("", self.input.credentials)])

    def covered(self, result: ResultT, census: FeatureCensus, namespaces: Collection[str]) -> ResultT:
        """Return the result of a precheck with the features in use, and with blockers for what is not covered."""
        return covered(
            result,
            self.input,
            census,
            lambda census: self.cluster.survey(census, namespaces),
            store=self.input.store,
            access=self.cluster.stores,
        )

    def keeper(self, store: CasStore) -> ClaimKeeper[Claim]:
        """Return the claim on the cluster."""
        return ClaimKeeper(store, Claim, self.attempt, ended=self._ended)

    def take_cluster(self, store: CasStore) -> None:
        """Take the claim on the cluster; waits while a migration of other topics of it runs.

        Raises:
            ClaimHeld: another kind of migration holds it, or one that this Temporal does not know.
            Superseded: a newer attempt or run of this one has it, or this run has ended.
        """
        keeper = self.keeper(store)
        while True:
            claimed = keeper.read()
            if claimed is None or claimed.claim.workflow_id == self.attempt.workflow_id:
                break
            if not self.owners.is_open(claimed.claim, store.url):
                self._ended.add(claimed.claim.run_id)
                break
            self.context.waiting_for(
                WaitKind.MIGRATION, f"{claimed.claim.workflow_id} of the same cluster to end", action="let it end"
            )
            self.context.pause(_POLL_INTERVAL)
        self.context.clear_waiting()
        claim = keeper.take()
        # Checked again: this attempt may have been frozen since the first check.
        # mutant: scalable-topic/the-cluster-is-taken-for-a-run-that-has-ended
        if not self.owners.is_open(claim, store.url):
            if claimed is None:
                keeper.release()
            raise Superseded(f"the run of {self.attempt} has ended; a late attempt stops")

    def is_running(self, claim: Claim, store: CasStore) -> bool:
        """Return whether the run that wrote a record still runs; true if this Temporal does not know it.

        Temporal is asked once for each run, which may have written hundreds of records.
        """
        if claim.run_id not in self._running:
            try:
                self._running[claim.run_id] = self.owners.is_open(claim, store.url)
            except ClaimHeld:
                self._running[claim.run_id] = True
        return self._running[claim.run_id]

    def is_orphaned(self, store: CasStore) -> bool:
        """Return whether a run of this or another migration to scalable topics holds the cluster, and has ended."""
        if (claimed := self.keeper(store).read()) is None or claimed.claim.is_of(self.attempt):
            return False
        is_own = claimed.claim.workflow_id == self.attempt.workflow_id
        return is_own or (is_ours(claimed.claim) and not self.owners.is_open(claimed.claim, store.url))

    def take_over(self, claim: Claim) -> None:
        """Count the run that left a record as ended: the run that holds the cluster may take its records over."""
        self._ended.add(claim.run_id)

    def namespace_guard(self, store: CasStore, namespace: str) -> NamespaceGuard[GuardedNamespace]:
        """Return the right to change a namespace."""
        return NamespaceGuard(store, self.attempt, namespace, GuardedNamespace, ended=self._ended)

    def topic_guard(self, store: CasStore, topic: TopicName) -> RecordGuard[TopicClaim]:
        """Return the right to change a topic."""
        path = topic_record(f"{topic.namespace_path}/{topic.topic}")
        return RecordGuard(store, self.attempt, TopicClaim, path, ended=self._ended)

    def operation_guard(self, store: CasStore, topic: TopicName) -> RecordGuard[OperatedTopic]:
        """Return the right to carry out an operation on a topic."""
        path = operation_record(f"{topic.namespace_path}/{topic.topic}")
        return RecordGuard(store, self.attempt, OperatedTopic, path, ended=self._ended)

    def registered(self) -> list[str]:
        """Return names of all brokers."""
        return [name for name, _ in self.cluster.brokers_now()]

    def answering(self) -> set[str]:
        """Return names of brokers that answer now; a broker that is frozen or gone does not."""
        answering: set[str] = set()
        for name, broker in self.cluster.brokers_now():
            with suppress(AdminError):
                broker.brokers.runtime_configuration()
                answering.add(name)
        return answering

    def find_topic(self, name: TopicName, *, described: bool = False) -> TopicInventory | None:
        """Return the current regular topic, without the subscription of the grace window; None if it does not exist.

        Args:
            name: its name.
            described: with its properties, policies and schemas.
        """
        reader = TopicReader(self.admin, self.context.check, described=described)
        try:
            partitions = self.admin.topics.partitions(name)
        except AdminNotFound:
            return None
        topic = reader.partitioned(name) if partitions else reader.plain(name)
        return topic and _without_grace(topic)

    def read_topic(self, name: TopicName, *, described: bool = False) -> TopicInventory:
        """Return the current regular topic; see `find_topic`.

        Raises:
            StoreNotFound: it is gone.
        """
        if (topic := self.find_topic(name, described=described)) is None:
            raise StoreNotFound(f"{name} does not exist any more: it was deleted", server=self.input.admin_urls[0])
        return topic


def _without_grace(topic: TopicInventory) -> TopicInventory:
    def without(partition: TopicPartition) -> TopicPartition:
        if partition.stats is None or GRACE not in partition.stats.subscriptions:
            return partition
        others = {name: subscription for name, subscription in partition.stats.subscriptions.items() if name != GRACE}
        return partition._replace(stats=partition.stats.model_copy(update={"subscriptions": others}))

    return replace(topic, parts=tuple(map(without, topic.parts)))


class TopicTask(ClusterTask[ScalableTopicInput]):
    """One attempt's view of the migration of one topic. Arguments as in `StepTask`.

    A migration of many topics holds the claims for each of them.
    """

    kind = TOPIC_KIND
    input_type = ScalableTopicInput

    def __init__(
        self, runtime: Runtime, execution: Execution[ScalableTopicInput], attempt: Attempt, context: ActivityContext
    ) -> None:
        if parent := execution.input.parent:
            attempt = parent.attempt(execution.epoch, attempt.attempt)
        super().__init__(runtime, execution, attempt, context)

    @property
    def name(self) -> TopicName:
        """The topic."""
        return TopicName.parse(self.input.topic)


class NamespaceTask(ClusterTask[ScalableNamespaceInput]):
    """One attempt's view of a migration of many topics."""

    kind = NAMESPACE_KIND
    input_type = ScalableNamespaceInput
