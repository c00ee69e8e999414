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
_FLOW_LIMIT = 90.0
# Brokers look for old parents every 60 s.
_DROPPED_LIMIT = 180.0

_OF_TEMPORAL = ("temporal", CUT, SILENT, SLOW)
_AMID_THE_NEXT = Gate("flip", Edge.BEFORE)
_CANNOT = "cannot"
"""A topic that stays regular: brokers cannot record its subscription."""


class FaultRound(fault_round.FaultRound[ScalableTopicRound]):
    """A migration while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        cluster: of the topics.
        fault: of this round.
        folder: for the clients' log.
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
        self._before = self._standing()
        assert self._before.notes == {}, "an earlier migration has left something"
        return self._flow

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: ScalableTopicRound) -> None:
        """Migrate, hit the victim at its moment, and wait until the migration has ended and all servers are back.

        Raises:
            AssertionError: something did not come in time; what the migration did until then is in the message.
        """
        gates = self.environment.gates
        gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        held_back = Gate("hold_all" if fault.many else "guard", Edge.AFTER)
        if fault.goes_back:
            gates.hold(held_back)
        # Where clients are waited for, they go when the wait was hit.
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
                wait_for("the rollback", lambda: _told(run, Verb.ROLLBACK), _PHASE_LIMIT)
            if fault.loses_run:
                run.terminate()
            else:
                self._wait_end(run)
        if fault.loses_run:
            self._migrate()
        self.hits.wait_all_back()
        if fault.late:
            self._come_back_late(fault, frozen)

    @contextmanager
    def _started(self, input: MigrationInput) -> Generator[Run]:
        """A migration; what it did is added to the message where an assertion fails meanwhile."""
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
        """Another migration of the same topics, without a fault."""
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
        """None: brokers and the worker name the servers alike."""
        raise NotImplementedError(victim)

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _come_back_late(self, fault: ScalableTopicRound, frozen: FaultyWorkerProcess | None) -> None:
        """Let the attempt that was given up continue: after the end, or, where topics stayed, during the next run."""
        if self.all_scalable or not fault.late_in_next_run:
            self._nothing_changes(fault, frozen)
            return
        gates = self.environment.gates
        gates.forget(_AMID_THE_NEXT)
        gates.hold(_AMID_THE_NEXT)
        with self._started(self._input()) as run:
            gates.wait_reached(_AMID_THE_NEXT)
            self._nothing_changes(fault, frozen)
            gates.release(_AMID_THE_NEXT)
            self._wait_end(run)
        assert end_state(self.end) == Outcome.DONE, self.end

    def _nothing_changes(self, fault: ScalableTopicRound, frozen: FaultyWorkerProcess | None) -> None:
        before = self._standing()
        self.resume_attempt(fault, frozen)
        assert changes(before, self._standing()) == [], "a late attempt changed something"

    # What must hold -----------------------------------------------------------------------------------------------

    @property
    def all_scalable(self) -> bool:
        """Whether all topics are."""
        return all(self._cluster.is_scalable(plan.topic) for plan in self._plans)

    def check_round(self, fault: ScalableTopicRound) -> None:
        """Check the end, and migrate again what stayed regular.

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
        assert self._flow.wait_until_all_are_back(_FLOW_LIMIT) == {}, "clients that did not come"
        self._flow.wait_for_more(3, _FLOW_LIMIT)
        self.end_traffic()
        self.check()

    def end_traffic(self) -> None:
        """End the traffic, and audit it; where no server was hit, no message may have come twice."""
        self._flow.stop()
        assert self._flow.faults(again=self._hits_servers) == []

    def interruption(self) -> tuple[str, float | None]:
        """How long a producer waited at most that had to send; with it, what people had to do, and what came twice."""
        audit = self._flow.audit()
        twice = audit.duplicates
        again = twice.resent + twice.unconfirmed + twice.other
        sending = {plan.producer.name for plan in self._plans if not plan.ordered}
        gap = max((producer.longest_gap for producer in audit.producers if producer.name in sending), default=None)
        return f"{len(self._flow.restarted)} restarted, {again} again, gap", gap

    def check(self) -> None:
        """Check everything that is promised of any end.

        Raises:
            AssertionError: a promise is broken.
        """
        now = self._standing()
        assert now.notes == {}, "somebody still holds the cluster"
        assert now.policies == self._before.policies, "policies were not put back"
        assert now.reported == self._before.reported, "a broker does not know of policies that were put back"
        for plan in self._plans:
            if self._cluster.is_scalable(plan.topic):
                assert self._cluster.faults(plan, cleaned_up=self._fault.cleans_up) == [], end_state(self.end)
            else:
                standing = now.topics[plan.topic]
                assert standing == self._before.topics[plan.topic], "a topic that stayed regular is not as it was"

    def _check_outcome(self, fault: ScalableTopicRound) -> None:
        """Only servers that are away may keep a migration from its end, and only the operator may send it back."""
        wanted = {Outcome.DONE}
        if fault.rolls_back:
            wanted.add(Outcome.ROLLED_BACK)
        if fault.step == RECORD_FAILURES:
            wanted = {Outcome.DONE_WITH_FAILURES}
        if not self._hits_servers:
            assert isinstance(self.end, Report), self.end
            assert self.end.outcome in wanted, f"{self.end.summary}: {self.end.failed_items}; {self.end.notes}"

    def _check_report(self, fault: ScalableTopicRound) -> None:
        """The report of a migration that went well says what it has done."""
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

    def _standing(self) -> TopicsSnapshot:
        return self._cluster.standing(self._namespace, [TopicName.parse(plan.topic) for plan in self._plans])

    def _input(self, **more: object) -> MigrationInput:
        if self._fault.many:
            return self._cluster.many(self._namespace, **more)
        return self._cluster.one(self._plans[0].topic, **more)


def _told(run: Run, verb: Verb) -> bool:
    """Give a verb; whether Temporal took it."""
    with suppress(RPCError, TimeoutError):
        run.signal(verb)
        return True
    return False
