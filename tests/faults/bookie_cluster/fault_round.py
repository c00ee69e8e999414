"""One round of faults in a bookie cluster migration: traffic, the fault, and what must hold afterwards."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from temporalio.service import RPCError

from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.server import Server
from pulsar_devstack.traffic.runner import Traffic
from tests.faults.bookie_cluster.environment import Registry, SwitchedCluster, Watch, read_registry
from tests.faults.bookie_cluster.rounds import SwitchRound, Victim
from tests.faults.lifecycle import fault_round
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores
from tests.support.waiting import wait_for

_END_LIMIT = 240.0
_PHASE_LIMIT = 180.0
_REPORT_LIMIT = 120.0
_SERVICE_LIMIT = 60.0

_COPY_SECONDS = 4.0
"""How long the throttle makes the bulk copy last where the hit comes within."""

_SHORT_WINDOW, _LONG_WINDOW = "PT4S", "PT1H"
_INTERVAL = 0.1
_FULL = {"diskUsageThreshold": "0.02", "diskUsageWarnThreshold": "0.01", "diskUsageLwmThreshold": "0.01"}
_SPACIOUS = dict.fromkeys(_FULL, "0.99")


class FaultRound(fault_round.FaultRound[SwitchRound]):
    """A switch of one cluster while traffic flows; a context manager.

    Args:
        environment: where switches run.
        cluster: what is switched.
    """

    def __init__(self, environment: FaultEnvironment, cluster: SwitchedCluster) -> None:
        super().__init__(environment, cluster.stack)
        self._cluster = cluster
        self._stays = False
        """Whether brokers use the same side afterwards as before."""

    def begin(self, opened: ExitStack) -> Traffic:
        """Begin to watch registry and ledgers."""
        topics = [f"flow-{self._cluster.rounds}"]
        traffic = opened.enter_context(Traffic.here(self.stack.broker_url, topics, interval=_INTERVAL))
        traffic.wait_for_more(5)
        self._watch = opened.enter_context(Watch(self._cluster))
        return traffic

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: SwitchRound) -> None:
        """Switch, hit the victim at its moment, and wait until the switch has ended and all servers are back.

        Raises:
            AssertionError: something did not come in time; what the switch did until then is in the message.
        """
        self._stays = fault.rolled_back
        run = self.environment.operator.start(self._cluster.input(**self._changes(fault)))
        with BrokerOperator(self.stack, run, kill=fault.victim.after_crash):
            try:
                frozen = self._hit_in_time(fault, run)
                self.end = self.environment.end_of(run, _END_LIMIT)
            except AssertionError as error:
                story = run.story()
                # The next round starts a switch of the same name; this one may have ended too early.
                with suppress(RPCError):
                    run.terminate()
                raise AssertionError(f"{error}\n{story}") from error
        self.hits.wait_all_back()
        if fault.late:
            self._come_back_late(fault, frozen)

    def _hit_in_time(self, fault: SwitchRound, run: Run) -> FaultyWorkerProcess | None:
        self._lead_up(fault, run)
        frozen = self.hit_at_gate(fault)
        self._end_reported_fault(fault, run)
        return frozen

    def _changes(self, fault: SwitchRound) -> dict[str, object]:
        changes: dict[str, object] = {}
        if fault.into_step:
            stored = sum(record.metadata.length for record in self._cluster.source.ledgers().values())
            changes["throttle"] = stored / 1e6 / _COPY_SECONDS
        if fault.rollback_on_failure:
            changes["rollback_window"] = _LONG_WINDOW
        elif fault.step == "census":
            changes["rollback_window"] = _SHORT_WINDOW
        if not fault.rollback_on_failure:
            self.environment.gates.hold(fault.gate, heartbeats=fault.victim != Victim.LOST_ATTEMPT)
        return changes

    def _lead_up(self, fault: SwitchRound, run: Run) -> None:
        """Ask for a rollback when it is time."""
        gates = self.environment.gates
        if fault.rollback_on_failure:
            run.wait_for_phase("ROLLBACK_WINDOW", _PHASE_LIMIT)
            self.traffic.wait_for_more(5)
            self._cluster.add_more()
            gates.hold(fault.gate, heartbeats=fault.victim != Victim.LOST_ATTEMPT)
            run.signal(Verb.ROLLBACK)

    def server(self, victim: str, fault: SwitchRound) -> Server | None:
        """Return a server by its name among the victims."""
        match victim:
            case Victim.ZOOKEEPER:
                return self.stack["zookeeper-1"]
            case Victim.LEADER:
                assert self._cluster.ensemble
                return self._cluster.ensemble.leader()
            case Victim.SOURCE_BOOKIE | Victim.TARGET_BOOKIE:
                return self._bookie(victim, fault)
            case _:
                return None

    def link(self, victim: str) -> Proxy:
        """Raise NotImplementedError: the worker must name the store as brokers do, so there is no link."""
        raise NotImplementedError(victim)

    def hit(self, victim: str, fault: SwitchRound) -> None:
        """Stop a bookie until the status reports it, or start a broker where none may run."""
        match victim:
            case Victim.GONE_SOURCE | Victim.GONE_TARGET:
                self._bookie(victim, fault).kill()
            case Victim.FULL_TARGET | Victim.FULL_ROLLBACK:
                self.stack.reconfigure(self._bookie(victim, fault).name, **_FULL)
            case Victim.RUDE_BROKER:
                broker = self.stack["broker-1"]
                # Its registration goes before its process does.
                wait_for("the broker's end", lambda: not broker.alive, _SERVICE_LIMIT)
                broker.start()
            case _:
                # The operator kills brokers that crash.
                pass

    def _bookie(self, victim: str, fault: SwitchRound) -> Server:
        """Return the victim: a bookie of the side from which, or to which, entries are copied at that moment."""
        source = "source" in victim
        side = self._cluster.source if source != fault.rollback_on_failure else self._cluster.target
        return self.stack[side.bookies[fault.seed % len(side.bookies)]]

    # A fault that lasts until the status reports it ------------------------------------------------------------------

    def _end_reported_fault(self, fault: SwitchRound, run: Run) -> None:
        if fault.victim == Victim.RUDE_BROKER:
            run.wait_until_it_waits_for(WaitKind.BROKERS_RETURNED, _REPORT_LIMIT)
            self.stack["broker-1"].stop()
        if not fault.victim.ends_when_reported:
            return
        run.wait_until("a reason to wait that names bookies", _waits_for_bookies, _REPORT_LIMIT)
        bookie = self._bookie(fault.victim, fault)
        if fault.victim == Victim.FULL_ROLLBACK:
            run.signal(Verb.ROLLBACK)
            self.end = self.environment.end_of(run, _END_LIMIT)
        if fault.victim in (Victim.FULL_TARGET, Victim.FULL_ROLLBACK):
            self.stack.reconfigure(bookie.name, **_SPACIOUS)
        else:
            bookie.start()

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _come_back_late(self, fault: SwitchRound, frozen: FaultyWorkerProcess | None) -> None:
        """Resume the superseded attempt after brokers have used the side of the last run for a while."""
        if self._stays:
            self._switch_again()
        self.traffic.wait_for_more(5)
        before = self._watch.ledgers()
        registry = self._registry()
        self.resume_attempt(fault, frozen)
        assert self._registry() == registry, "a late attempt changed the registry"
        for was, now in zip(before, self._watch.ledgers(), strict=True):
            closed = {number: record.mzxid for number, record in was.items() if record.metadata.closed}
            changed = [number for number, mzxid in closed.items() if number in now and now[number].mzxid != mzxid]
            assert changed == [], "a late attempt changed ledgers that were closed"
        old, new = (set(now) - set(was) for was, now in zip(before, self._watch.ledgers(), strict=True))
        assert (new if self._stays else old) == set(), "a late attempt made ledgers where no broker writes"

    def _switch_again(self) -> None:
        """Switch again after a rollback, without a fault."""
        run = self.environment.operator.start(self._cluster.input())
        with BrokerOperator(self.stack, run):
            self.end = self.environment.end_of(run, _END_LIMIT)
        self._stays = False

    # What must hold -----------------------------------------------------------------------------------------------

    def check_round(self, fault: SwitchRound) -> None:
        """Check everything that is promised of an end.

        Raises:
            AssertionError: a promise is broken.
        """
        cluster = self._cluster
        wanted = Outcome.ROLLED_BACK if self._stays else Outcome.DONE
        assert isinstance(self.end, Report), self.end
        assert (self.end.outcome, self.end.failed_items) == (wanted, []), self.end.summary
        self._check_certificate(self.end, fault)
        if not self._stays:
            cluster.swap()
        registry = self._registry()
        assert registry.statuses[cluster.source.cluster.name] == "ACTIVE"
        assert registry.directed in (cluster.source.cluster.name, None)
        assert not registry.claimed, "a migration still holds the switch"
        assert registry.unfinished == []
        self.traffic.wait_for_more(3)
        wait_for("a broker on the side that is ACTIVE", lambda: cluster.brokers_use(cluster.source), 10)
        cluster.verify()
        self._check_ids()
        self.end_traffic()
        assert self._watch.broken == []

    def interruption(self) -> tuple[str, float | None]:
        """Return how long no broker ran."""
        figures = self.end.figures if isinstance(self.end, Report) else {}
        return "paused", figures.get("pause_seconds")

    def _check_certificate(self, report: Report, fault: SwitchRound) -> None:
        certificate = report.certificate
        if report.outcome is Outcome.DONE:
            assert certificate["ledgers_compared"] > 0
            assert certificate["references_missing"] == 0
            assert certificate["brokers_on_the_target"]
        elif fault.rollback_on_failure:
            assert certificate["ledgers_compared_in_rollback"] > 0
            assert certificate["brokers_on_the_source"]

    def _check_ids(self) -> None:
        """Check that new ledgers are created where brokers are directed, with ids above all that were ever seen."""
        now, other = self._watch.ledgers()
        before, highest = set(now), max(self._cluster.identities)
        self._cluster.add_more()
        now, still = self._watch.ledgers()
        assert sum(number > highest for number in now) > 1
        assert all(number > highest for number in set(now) - before)
        assert set(still) == set(other), "a ledger was made where no broker may write"

    def _registry(self) -> Registry:
        with stores.kazoo(self.stack.zk_url) as client:
            return read_registry(client)


def _waits_for_bookies(status: Status) -> bool:
    """Return whether the switch waits for bookies: for one that does not answer, or to retry after one that is full."""
    wait = status.waiting
    return wait is not None and (
        wait.kind is WaitKind.BOOKIES or (wait.kind is WaitKind.RETRY and "bookie" in wait.why)
    )
