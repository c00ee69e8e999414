"""One round of faults in a blue-green migration: traffic, the fault, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from temporalio.service import RPCError

from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Status
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.server import Server
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, Subscribed, TopicPlan
from pulsar_devstack.traffic.pulsar_client import send_to
from pulsar_devstack.traffic.two_clusters import TwoClusters
from tests.faults.blue_green.environment import BlueAndGreen, ClusterState
from tests.faults.blue_green.flow import Flow, faults_of, topic
from tests.faults.blue_green.rounds import BACK, BlueGreenRound, Victim
from tests.faults.lifecycle import fault_round
from tests.faults.lifecycle.environment import FaultEnvironment, end_state
from tests.faults.lifecycle.rounds import CUT, SILENT, SLOW
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Run
from tests.support.waiting import wait_for

_END_LIMIT = 300.0
_PHASE_LIMIT = 180.0

_OF_TEMPORAL = ("temporal", CUT, SILENT, SLOW)
_HELD_BACK = Gate("quiesce", Edge.AFTER)
_UNDO_TERMINATED = "bg_undo_terminated_batch"
# One batch at a time: a gate holds one attempt, and the other batch would continue.
_WAVES = {"canary": 0, "gate": "none", "parallelism": 1}
_OWN_RATE = PublishRate(publish_throttling_rate_in_msg=5_000)


class FaultRound(fault_round.FaultRound[BlueGreenRound]):
    """A migration of two namespaces while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        clusters: blue and green.
        folder: for the clients' log.
    """

    def __init__(self, environment: FaultEnvironment, clusters: BlueAndGreen, folder: Path) -> None:
        super().__init__(environment, clusters.blue)
        self._clusters = clusters
        self._folder = folder
        self._tenant = f"round-{clusters.rounds}"
        self._limited, self._free = self._namespaces = [f"{self._tenant}/limited", f"{self._tenant}/free"]
        self._whole_cluster = False

    def begin(self, opened: ExitStack) -> Flow:
        """Create the namespaces, one with a limit of its own, and send to their topics."""
        opened.callback(self._clusters.forget, self._namespaces)
        clusters = self._clusters.clusters
        two = TwoClusters(clusters.blue_admin, clusters.green_admin, clusters.blue.broker_url, clusters.green_urls)
        plans = self._plans()
        for name, topics in plans.items():
            two.prepare(name, topics, on_green=False)
        clusters.blue_admin.namespaces.set_publish_rate(self._limited, _OWN_RATE)
        clusters.blue_admin.subscriptions.create(TopicName.parse(self._idle.topic), self._idle.subscription)
        flat = [plan for topics in plans.values() for plan in topics]
        self._flow = opened.enter_context(Flow(clusters, flat, self._folder))
        self._flow.wait_for_more(5)
        self._before = self._clusters.cluster_state(self._namespaces)
        assert self._before.notes == {}, "an earlier migration has left something"
        return self._flow

    def _plans(self) -> dict[str, list[TopicPlan]]:
        limited, free = (f"persistent://{name}" for name in self._namespaces)
        return {
            self._limited: [
                topic(f"{limited}/parts", Subscribed.FAILOVER, partitions=2),
                topic(f"{limited}/keys", Subscribed.KEY_SHARED),
            ],
            self._free: [topic(f"{free}/plain", Subscribed.EXCLUSIVE, cumulative=True)],
        }

    @property
    def _idle(self) -> ConsumerPlan:
        """Return a subscription without consumers before the end, so that its backlog is copied."""
        name = f"persistent://{self._free}/plain"
        return ConsumerPlan("idle", name, Language.PYTHON, Subscribed.FAILOVER)

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: BlueGreenRound) -> None:
        """Migrate, hit the victim at its moment, and wait until the migration has ended and all servers are back.

        Raises:
            AssertionError: something did not come in time; what the migration did until then is in the message.
        """
        gates = self.environment.gates
        gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        if fault.step in (*BACK, _UNDO_TERMINATED):
            gates.hold(_HELD_BACK)
        with self._started(**self._changes(fault)) as run:
            self._lead_up(fault, run)
            frozen = self.hit_at_gate(fault)
            if fault.rolls_back and fault.step not in BACK:
                wait_for("the rollback", lambda: _send_verb(run, Verb.ROLLBACK), _PHASE_LIMIT)
            self._wait_end(run)
        self.hits.wait_all_back()
        if fault.late:
            self._continue_late_attempt(fault, frozen)

    @contextmanager
    def _started(self, **changes: object) -> Generator[Run]:
        """Yield a started migration; if an assertion fails during it, the message gets the migration's history."""
        run = self.environment.operator.start(self._input(**changes))
        try:
            yield run
        except AssertionError as error:
            story = run.story()
            # The next round starts a migration of the same name; this one may have ended too early.
            with suppress(RPCError):
                run.terminate()
            raise AssertionError(f"{error}\n{story}") from error

    def _changes(self, fault: BlueGreenRound) -> dict[str, object]:
        waves = {**_WAVES, "batch_size": fault.batch_size, "when_held": "stop"}
        changes: dict[str, object] = {"waves": waves}
        self._whole_cluster = fault.step == "bg_complete"
        if fault.step == _UNDO_TERMINATED:
            changes["waves"] = {**waves, "batch_size": 1, "error_budget": {"items": 2}}
        if fault.step == "bg_clean_up":
            changes |= {"cleanup": "remove", "grace_window": "PT1H"}
        if fault.step == "bg_record_failures":
            self._leave_backlog()
            changes |= {
                "drain_timeout": "PT10S",
                "idle_subscriptions": "wait",
                "waves": {**waves, "error_budget": {"items": 2}},
            }
        return changes

    def _lead_up(self, fault: BlueGreenRound, run: Run) -> None:
        """Ask for a rollback, or for the cleanup, when it is time."""
        gates = self.environment.gates
        if fault.step in BACK:
            gates.wait_reached(_HELD_BACK)
            run.signal(Verb.ROLLBACK)
        if fault.step == _UNDO_TERMINATED:
            gates.wait_reached(_HELD_BACK)
            self.environment.operator.batch(self._input(), min(self._namespaces)).terminate()
        if fault.step == "bg_clean_up":
            run.wait_for_phase("GRACE", _PHASE_LIMIT)

            def cleaning(status: Status) -> bool:
                # It is refused as long as clients open connections to blue.
                if status.phase == "GRACE":
                    run.signal(Verb.CLEANUP)
                return status.phase == "CLEANUP"

            run.wait_until("the cleanup", cleaning, _PHASE_LIMIT)

    def _leave_backlog(self) -> None:
        """Leave a backlog without consumers, so that a namespace cannot be moved even without a fault."""
        admin, (_, keys) = self._clusters.clusters.blue_admin, self._plans()[self._limited]
        admin.subscriptions.create(TopicName.parse(keys.topic), "idle")
        send_to(self.stack.broker_url, [keys.topic])

    def _wait_end(self, run: Run) -> None:
        self.end = self.environment.end_of(run, _END_LIMIT)

    def server(self, victim: str, fault: BlueGreenRound) -> Server:
        """Return a server by its name among the victims."""
        clusters = self._clusters
        match victim:
            case Victim.BROKER:
                return clusters.blue[fault.broker]
            case Victim.GREEN_BROKER:
                return clusters.green["broker-1"]
            case Victim.GREEN_ZOOKEEPER:
                return clusters.green["zookeeper-1"]
            case Victim.ZOOKEEPER:
                return clusters.blue["zookeeper-1"]
            case _:
                assert clusters.ensemble
                return clusters.ensemble.leader() if victim == Victim.LEADER else clusters.ensemble.follower()

    def link(self, victim: str) -> Proxy:
        """Refuse: there is no link, since brokers and the worker name the servers alike."""
        raise NotImplementedError(victim)

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _continue_late_attempt(self, fault: BlueGreenRound, frozen: FaultyWorkerProcess | None) -> None:
        """Continue the lost attempt: after the end, or, if namespaces stayed, during the next run."""
        if self.moved or not fault.late_in_next_run:
            self._nothing_changes(fault, frozen)
            return
        gates = self.environment.gates
        gate = Gate("quiesce" if fault.gate.step == "load" else "load", Edge.AFTER)
        gates.forget(gate)
        gates.hold(gate)
        with self._started() as run:
            gates.wait_reached(gate)
            self._nothing_changes(fault, frozen)
            gates.release(gate)
            self._wait_end(run)
        assert end_state(self.end) == Outcome.DONE, self.end

    def _nothing_changes(self, fault: BlueGreenRound, frozen: FaultyWorkerProcess | None) -> None:
        before = self._state()
        self.resume_attempt(fault, frozen)
        after = self._state()
        for what, was, now in zip(ClusterState._fields, before, after, strict=True):
            assert now == was, f"a late attempt changed {what}: {was} to {now}"

    # What must hold -----------------------------------------------------------------------------------------------

    @property
    def moved(self) -> bool:
        """Whether clients of all namespaces are sent to green."""
        return all(self._clusters.flags(self._namespaces).values())

    def check_round(self, fault: BlueGreenRound) -> None:
        """Check the end, and migrate again if namespaces stayed.

        Raises:
            AssertionError: a promise is broken.
        """
        self._check_outcome(fault)
        self.check()
        if not self.moved:
            self.traffic.wait_for_more(3)
            failed = self.end
            self._wait_end(self.environment.operator.start(self._input()))
            assert end_state(self.end) == Outcome.DONE, f"after {failed!r}: {self.end!r}"
            self.check()
        self.traffic.wait_for_more(3)
        self.end_traffic()
        self.check()
        self._check_copy()

    def _check_copy(self) -> None:
        """Check that the idle subscription has every message, in order, without consumers on blue."""
        if end_state(self.end) == Outcome.DONE:
            faults = faults_of(self._flow.left_for(self._idle, self._clusters.green.broker_url))
            assert faults == [], "the messages copied from blue, and those sent to green after them"
            assert self._clusters.copies() == {}, "records of copies are left"

    def interruption(self) -> tuple[str, float | None]:
        """Return the longest wait of a producer, with the number of manual restarts and of duplicates."""
        audit = self._flow.audit()
        twice = audit.duplicates
        again = twice.resent + twice.unconfirmed + twice.other
        return f"{len(self._flow.restarted)} restarted, {again} again, gap", audit.longest_gap

    def check(self) -> None:
        """Check everything that is promised of any end.

        Raises:
            AssertionError: a promise is broken.
        """
        now = self._state()
        assert now.notes == {}, "a migration still holds one of the clusters"
        assert now.rates == self._before.rates, "writes are held back"
        assert now.settings == self._before.settings, "dynamic settings were not restored"
        assert now.running == self._before.running, "a broker does not run on the restored settings"
        half = [wrong for name, moved in now.flags.items() for wrong in self._clusters.half_moved(name, moved=moved)]
        assert half == [], f"moved: {now.flags}; {end_state(self.end)}"
        if end_state(self.end) == Outcome.DONE:
            assert all(now.flags.values())
            assert now.cluster
            assert now.cluster.migrated is self._whole_cluster, "the flag of the whole cluster"

    def _check_outcome(self, fault: BlueGreenRound) -> None:
        """Check that only failed servers kept a migration from its end, and that only the operator rolled it back."""
        servers = set(fault.victims_at_once) - {Victim.WORKER, Victim.ZOMBIE, Victim.LOST_ATTEMPT}
        wanted = {Outcome.DONE}
        if fault.rolls_back:
            wanted.add(Outcome.ROLLED_BACK)
        if fault.step == _UNDO_TERMINATED:
            # Of this run, and DONE of the next one, during which a late attempt may have come.
            wanted.add(Outcome.DONE_WITH_FAILURES)
        if fault.step == "bg_record_failures":
            wanted = {Outcome.DONE_WITH_FAILURES}
        if all(victim.endswith(_OF_TEMPORAL) for victim in servers):
            assert isinstance(self.end, Report), self.end
            assert self.end.outcome in wanted, f"{self.end.summary}: {self.end.failed_items}"

    def _state(self) -> ClusterState:
        return self._clusters.cluster_state(self._namespaces)

    def _input(self, **more: object) -> BlueGreenInput:
        fields: dict[str, object] = {
            "waves": _WAVES,
            "complete_cluster": self._whole_cluster,
            "idle_subscriptions": "copy",
        }
        return self._clusters.input(self._tenant, **{**fields, **more})


def _send_verb(run: Run, verb: Verb) -> bool:
    """Send a verb; return whether Temporal accepted it."""
    with suppress(RPCError, TimeoutError):
        run.signal(verb)
        return True
    return False
