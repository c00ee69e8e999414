"""One round of faults in a migration to scalable topics: traffic, the fault, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from temporalio.service import RPCError

from clients.pulsar.names import TopicName
from models.lifecycle.input import MigrationInput
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.scalable_topic.state import NamespaceFigures, TopicCertificate
from pulsar_devstack.servers.server import Server
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan
from tests.faults.lifecycle import fault_round
from tests.faults.lifecycle.environment import FaultEnvironment, end_state
from tests.faults.lifecycle.rounds import CUT, SILENT, SLOW
from tests.faults.lifecycle.shared_cluster import TENANT
from tests.faults.scalable_topic.environment import ScalableCluster
from tests.faults.scalable_topic.flow import INTERVAL, Flow
from tests.faults.scalable_topic.rounds import RECORD_FAILURES, ScalableTopicRound, Victim
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Run
from tests.support.scalable_topic.existing_topics import OWN_POLICIES, TopicsSnapshot, changes
from tests.support.waiting import wait_for

_END_LIMIT = 300.0
_PHASE_LIMIT = 180.0
# Brokers check for consumed parents every 60 s.
_DROPPED_LIMIT = 180.0

_OF_TEMPORAL = ("temporal", CUT, SILENT, SLOW)
_DURING_NEXT_FLIP = Gate("flip", Edge.BEFORE)
_CANNOT = "cannot"
"""A topic that stays regular: brokers cannot record its subscription."""


class FaultRound(fault_round.FaultRound[ScalableTopicRound]):
    """A migration while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        cluster: the cluster of the topics.
        fault: the fault of this round.
        folder: for the log of the clients.
    """

    def __init__(
        self,
        environment: FaultEnvironment,
        cluster: ScalableCluster,
        fault: ScalableTopicRound,
        folder: Path,
    ) -> None:
        super().__init__(environment, cluster.stack)
        self._cluster, self._fault, self._folder = cluster, fault, folder
        self._namespace = f"{TENANT}/r{cluster.rounds}"
        self._plans = self._planned()

    def _planned(self) -> Sequence[ScalableTopicPlan]:
        fault, base = self._fault, f"persistent://{self._namespace}"
        first = ScalableTopicPlan(f"{base}/t0", fault.partitions, fault.ordered, INTERVAL)
        second = ScalableTopicPlan(f"{base}/t1", 3 - fault.partitions, ordered=False, interval=INTERVAL)
        return [first, second] if fault.many else [first]

    def begin(self, opened: ExitStack) -> Flow:
        """Create the topics, and send to them."""
        cluster = self._cluster
        cluster.create(self._namespace, self._plans, OWN_POLICIES if self._fault.own_policies else {})
        self._flow = opened.enter_context(Flow(cluster, self._plans, self._folder, cluster.tools))
        self._flow.wait_for_more(3)
        self._before = self._snapshot()
        assert self._before.notes == {}, "an earlier migration left records"
        return self._flow

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: ScalableTopicRound) -> None:
        """Migrate, inject the fault, and wait until the migration has ended and all servers are back.

        Raises:
            AssertionError: a step took too long; the message contains the progress of the migration.
        """
        gates = self.environment.gates
        gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        held_back = Gate("hold_all" if fault.many else "guard", Edge.AFTER)
        if fault.goes_back:
            gates.hold(held_back)
        # If the step waits for clients, they leave after the fault.
        waits = fault.gate.step == "await_clients"
        if not waits:
            self._flow.step_aside()
        with self._started(self._input(**self._changes(fault))) as run:
            if fault.goes_back:
                gates.wait_reached(held_back)
                run.signal(Verb.ROLLBACK)
            if fault.cleans_up:
                self._ask_for_cleanup(run)
            frozen = self.hit_at_gate(fault)
            if waits:
                self._flow.step_aside()
            if fault.rolls_back and not fault.goes_back:
                wait_for("the rollback", lambda: _signalled(run, Verb.ROLLBACK), _PHASE_LIMIT)
            if fault.loses_run:
                run.terminate()
            else:
                self._wait_end(run)
        if fault.loses_run:
            self._migrate()
        self.hits.wait_all_back()
        if fault.late:
            self._resume_late_attempt(fault, frozen)

    @contextmanager
    def _started(self, input: MigrationInput) -> Generator[Run]:
        """Start a migration; add its progress to the message of an assertion that fails during it."""
        run = self.environment.operator.start(input)
        try:
            yield run
        except AssertionError as error:
            story = run.story()
            # The next round starts a migration of the same name; this one may have ended too early.
            with suppress(RPCError):
                run.terminate()
            raise AssertionError(f"{error}\n{story}") from error

    def _changes(self, fault: ScalableTopicRound) -> dict[str, object]:
        if fault.step == RECORD_FAILURES:
            name = TopicName.parse(f"persistent://{self._namespace}/{_CANNOT}")
            self._cluster.admin.topics.create(name)
            self._cluster.admin.subscriptions.create(name, "with/slash")
        return {"cleanup": "remove", "grace_window": "PT1H"} if fault.cleans_up else {}

    def _ask_for_cleanup(self, run: Run) -> None:
        run.wait_for_phase("GRACE", _PHASE_LIMIT)
        wait_for("old parents to be dropped", lambda: not any(map(self._old_parents, self._plans)), _DROPPED_LIMIT)
        run.signal(Verb.CLEANUP)

    def _old_parents(self, plan: ScalableTopicPlan) -> int:
        return self._cluster.old_parents(plan.topic)

    def _migrate(self) -> None:
        """Migrate the same topics again, without a fault."""
        with self._started(self._input()) as run:
            self._wait_end(run)

    def _wait_end(self, run: Run) -> None:
        self.end = self.environment.end_of(run, _END_LIMIT)

    def server(self, victim: str, fault: ScalableTopicRound) -> Server:
        """Return a server by its name among the victims."""
        cluster = self._cluster
        match victim:
            case Victim.BROKER:
                return cluster.leading_broker(self._plans[0])
            case Victim.OTHER_BROKER:
                return cluster.other_broker(self._plans[0])
            case Victim.LEADER | Victim.FOLLOWER:
                assert cluster.ensemble
                return cluster.ensemble.leader() if victim == Victim.LEADER else cluster.ensemble.follower()
            case _:
                return cluster.stack[f"{victim}-1"]

    def link(self, victim: str) -> Proxy:
        """Raise: this migration has no links that can fail."""
        raise NotImplementedError(victim)

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _resume_late_attempt(self, fault: ScalableTopicRound, frozen: FaultyWorkerProcess | None) -> None:
        """Resume the abandoned attempt after the end or, if topics stayed regular, during the next run."""
        if self.all_scalable or not fault.late_in_next_run:
            self._nothing_changes(fault, frozen)
            return
        gates = self.environment.gates
        gates.forget(_DURING_NEXT_FLIP)
        gates.hold(_DURING_NEXT_FLIP)
        with self._started(self._input()) as run:
            gates.wait_reached(_DURING_NEXT_FLIP)
            self._nothing_changes(fault, frozen)
            gates.release(_DURING_NEXT_FLIP)
            self._wait_end(run)
        assert end_state(self.end) == Outcome.DONE, self.end

    def _nothing_changes(self, fault: ScalableTopicRound, frozen: FaultyWorkerProcess | None) -> None:
        before = self._snapshot()
        self.resume_attempt(fault, frozen)
        assert changes(before, self._snapshot()) == [], "a late attempt changed something"

    # What must hold -----------------------------------------------------------------------------------------------

    @property
    def all_scalable(self) -> bool:
        """Whether all topics are scalable."""
        return all(self._cluster.is_scalable(plan.topic) for plan in self._plans)

    def check_round(self, fault: ScalableTopicRound) -> None:
        """Check the end, and migrate topics that stayed regular again.

        Raises:
            AssertionError: a promise is broken.
        """
        self._check_outcome(fault)
        self._check_report(fault)
        self.check()
        if not self.all_scalable:
            failed = self.end
            self._migrate()
            assert end_state(self.end) == Outcome.DONE, f"after {failed!r}: {self.end!r}"
            self.check()
        assert self._flow.wait_until_all_are_back() == {}, "clients that did not connect again"
        self._flow.wait_for_more(3)
        self.end_traffic()
        self.check()

    def end_traffic(self) -> None:
        """End the traffic, and audit it; where no server was hit, no message may have come twice."""
        self._flow.stop()
        assert self._flow.faults(again=self._hits_servers) == []

    def interruption(self) -> tuple[str, float | None]:
        """Return the longest gap of a sending producer, with the numbers of restarts and of duplicates."""
        audit = self._flow.audit()
        twice = audit.duplicates
        again = twice.resent + twice.unconfirmed + twice.other
        sending = {plan.producer.name for plan in self._plans if not plan.ordered}
        gap = max((producer.longest_gap for producer in audit.producers if producer.name in sending), default=None)
        return f"{len(self._flow.restarted)} restarted, {again} again, gap", gap

    def check(self) -> None:
        """Check the guarantees that hold after every outcome.

        Raises:
            AssertionError: a promise is broken.
        """
        now = self._snapshot()
        assert now.notes == {}, "the cluster is still claimed"
        assert now.policies == self._before.policies, "policies were not restored"
        assert now.reported == self._before.reported, "a broker does not apply the restored policies"
        for plan in self._plans:
            if self._cluster.is_scalable(plan.topic):
                assert self._cluster.faults(plan, cleaned_up=self._fault.cleans_up) == [], end_state(self.end)
            else:
                snapshot = now.topics[plan.topic]
                assert snapshot == self._before.topics[plan.topic], "a topic that stayed regular is not as it was"

    def _check_outcome(self, fault: ScalableTopicRound) -> None:
        """Require that only missing servers stop a migration, and that only the operator rolls it back."""
        wanted = {Outcome.DONE}
        if fault.rolls_back:
            wanted.add(Outcome.ROLLED_BACK)
        if fault.step == RECORD_FAILURES:
            wanted = {Outcome.DONE_WITH_FAILURES}
        if not self._hits_servers:
            assert isinstance(self.end, Report), self.end
            assert self.end.outcome in wanted, f"{self.end.summary}: {self.end.failed_items}; {self.end.notes}"

    def _check_report(self, fault: ScalableTopicRound) -> None:
        """Require that the report of a successful migration has the right figures."""
        if end_state(self.end) != Outcome.DONE:
            return
        assert isinstance(self.end, Report)
        if fault.many:
            figures = NamespaceFigures.model_validate(self.end.figures)
            assert figures.topics_scalable == len(self._plans), self.end
            return
        (plan,) = self._plans
        proof = TopicCertificate.model_validate(self.end.certificate)
        wanted = (plan.topic, plan.partitions, plan.segments, len(plan.regular_consumers))
        assert (proof.migrated_from, proof.partitions, proof.segments, proof.subscriptions) == wanted, self.end
        assert (proof.undrained, proof.faults) == ({}, []), self.end

    @property
    def _hits_servers(self) -> bool:
        """Whether servers other than Temporal are hit."""
        servers = set(self._fault.victims_at_once) - {Victim.WORKER, Victim.ZOMBIE, Victim.LOST_ATTEMPT}
        return not all(victim.endswith(_OF_TEMPORAL) for victim in servers)

    def _snapshot(self) -> TopicsSnapshot:
        return self._cluster.snapshot(self._namespace, [TopicName.parse(plan.topic) for plan in self._plans])

    def _input(self, **more: object) -> MigrationInput:
        if self._fault.many:
            return self._cluster.namespace_migration(self._namespace, **more)
        return self._cluster.topic_migration(self._plans[0].topic, **more)


def _signalled(run: Run, verb: Verb) -> bool:
    """Send a signal; return whether Temporal accepted it."""
    with suppress(RPCError, TimeoutError):
        run.signal(verb)
        return True
    return False
