"""One migration with one fault: everything that happens, and everything that has to hold afterwards."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any, Self

from deploy.devstack.admin import StackAdmin, accepts
from deploy.devstack.stack import Stack
from deploy.devstack.traffic import Traffic, send_to
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.flag import FlagPhase
from tests.faults.lifecycle.environment import End, FaultEnvironment, Hits, end_state
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store.environment import CLUSTER, FlagWatch, input
from tests.faults.metadata_store.rounds import BACK, MetadataRound, Victim
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.gates import Edge, Gate
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores
from tests.support.waiting import wait_for

BALLAST = "/ballast"
_NODES, _NODE_BYTES = 2000, 400
_SLOW = 0.2
"""Megabytes per second: the copy of the ballast takes four seconds."""

_DELAY = 0.2

_END_LIMIT = 200.0
_WRITABLE_LIMIT = 30.0
BLOCKED_LIMIT = 60.0 + 45.0
"""The plan's `blocked_deadline`; and what it may take to notice that a worker is gone and to start another one."""

_DOOMED = [f"doomed-{number}" for number in range(3)]
_FRESH = [f"fresh-{number}" for number in range(5)]
_ROLLBACK_AT = Gate("copy_changes", Edge.BEFORE)
_SERVERS = {
    Victim.BROKER: "broker-2",
    Victim.ZOOKEEPER: "zookeeper-1",
    Victim.OXIA: "oxia-1",
    Victim.FROZEN_OXIA: "oxia-1",
}


class FaultRound:
    """A migration of the cluster that was taken last, while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        stacks: gives the cluster; the next one is started while this one's end is looked at.

    Attributes:
        end: how the migration ended, once it has.
    """

    def __init__(self, environment: FaultEnvironment, stacks: StackPool) -> None:
        self._environment, self._stacks = environment, stacks
        self._stack = stack = stacks.current
        self._admins = [StackAdmin(url) for url in stack.admin_urls]
        self._opened = ExitStack()
        self._hits = Hits(environment)
        self.end: End | None = None

    def __enter__(self) -> Self:
        environment, stack = self._environment, self._stack
        environment.gates.clear()
        with self._opened as opened:
            opened.enter_context(self._hits)
            for admin in self._admins:
                opened.callback(admin.close)
            send_to(stack.broker_url, _DOOMED)
            put_ballast(stack)
            self.traffic = opened.enter_context(Traffic(stack.broker_url, ["flow-0", "flow-1"]))
            self.traffic.wait_for_more(5)
            self.watch = opened.enter_context(FlagWatch(stack))
            self._before = stores.read_zookeeper(stack.zk_url)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: MetadataRound) -> None:
        """Migrate, hit the victim at its moment, and wait until the migration has ended and all servers are back."""
        environment = self._environment
        late = fault.victim in (Victim.ZOMBIE, Victim.LOST_ATTEMPT)
        if fault.step in BACK:
            environment.gates.hold(_ROLLBACK_AT)
        environment.gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        changes: dict[str, object] = {"throttle": _SLOW} if fault.long_pre_copy else {}
        if fault.victim.of_link:
            self._link = self._opened.enter_context(Proxy(self._stack["zookeeper-1"].address))
            changes["source"] = f"zk:{self._link.address}"
        run = environment.operator.start(input(self._stack, **changes))
        if fault.step in BACK:
            environment.gates.wait_reached(_ROLLBACK_AT)
            run.signal(Verb.ROLLBACK)
        environment.gates.wait_reached(fault.gate)
        if fault.into_step:
            environment.gates.release(fault.gate)
            threading.Event().wait(fault.into_step)
        frozen = self._hit(fault)
        if not late:
            environment.gates.release(fault.gate)
        self.wait_end(run)
        self._hits.wait_all_back()
        if late:
            self._come_back_late(fault, frozen)

    def wait_end(self, run: Run) -> None:
        """Wait for the end of the migration.

        Raises:
            AssertionError: it did not end in time, or not as a migration ends; the worker's log is in the message.
        """
        self.end = self._environment.end_of(run, _END_LIMIT)
        self._stacks.prepare()

    def _hit(self, fault: MetadataRound) -> FaultyWorkerProcess | None:
        environment, victim = self._environment, fault.victim
        match victim:
            case Victim.WORKER:
                self._hits.worker()
            case Victim.ZOMBIE:
                return self._hits.zombie()
            case Victim.LOST_ATTEMPT:
                pass
            case Victim.TEMPORAL:
                self._hits.kill(environment.stack["temporal"], fault.seconds_down)
            case Victim.FROZEN_OXIA:
                self._hits.freeze(self._stack[_SERVERS[victim]], fault.seconds_down)
            case Victim.BROKER | Victim.ZOOKEEPER | Victim.OXIA:
                self._hits.kill(self._stack[_SERVERS[victim]], fault.seconds_down)
            case _:
                self._hit_link(victim, fault.seconds_down)
        return None

    def _hit_link(self, victim: Victim, seconds: float) -> None:
        place, _, manner = victim.partition("-")
        link = self._environment.link if place == "temporal" else self._link
        match manner:
            case "cut":
                link.cut()
            case "silent":
                link.silence()
            case _:
                link.slow_down(_DELAY)
        self._hits.later(seconds, link.heal)

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _come_back_late(self, fault: MetadataRound, frozen: FaultyWorkerProcess | None) -> None:
        """Let the attempt that was given up go on, after brokers have changed the target."""
        if self.completed:
            self._use_target()
        before = stores.read_oxia(self._stack.oxia_url)
        self._environment.gates.release(fault.gate)
        if frozen:
            frozen.thaw()
        try:
            self._environment.gates.wait_ended(fault.gate)
        finally:
            if frozen:
                frozen.close()
        after = stores.read_oxia(self._stack.oxia_url)
        self._nothing_came_back(before, after)

    def _use_target(self) -> None:
        admin = self._admins[0]
        for name in _DOOMED:
            wait_for(f"the deletion of {name}", lambda name=name: accepts(admin.delete_topic, name), _WRITABLE_LIMIT)
        self.traffic.wait_for_more(5)

    def _nothing_came_back(self, before: stores.Records, after: stores.Records) -> None:
        back = {path for path in stores.persistent(after) - set(before) if path in self._before}
        assert back == set(), "a late attempt wrote what brokers had deleted"
        older = {path for path in before if path in after and after[path].version < before[path].version}
        assert older == set(), "a late attempt wrote older versions"
        assert (ours := self._ours_in_target()) == set(), f"a late attempt claimed the target: {ours}"

    # What has to hold -----------------------------------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Whether the migration says that it committed."""
        return isinstance(self.end, Report) and self.end.outcome is Outcome.DONE

    def check(self) -> None:
        """Check everything that is promised of an end.

        Raises:
            AssertionError: a promise is broken.
        """
        wanted = {FlagPhase.COMPLETED} if self.completed else {FlagPhase.FAILED, FlagPhase.NOT_STARTED}
        wait_for("a flag that agrees with the outcome", lambda: self.watch.phase in wanted, 10)
        for number, admin in enumerate(self._admins, 1):
            wait_for(f"a write through broker {number}", lambda admin=admin: admin.can_write(CLUSTER), _WRITABLE_LIMIT)
        spans = self.watch.blocked()
        assert not spans or max(spans) <= BLOCKED_LIMIT, f"writes were blocked for {max(spans):.0f} s"
        if self.completed:
            self._check_completed()
        else:
            self._check_failed()

    def migrate_again(self) -> None:
        """Start the same migration once more, without a fault; it has to complete.

        Raises:
            AssertionError: it did not.
        """
        self._environment.gates.clear()
        failed = self.end
        self.wait_end(self._environment.operator.start(input(self._stack)))
        assert self.completed, f"after {failed!r}: {self.end!r}"
        self.check()

    def _check_completed(self) -> None:
        wait_for("the look at both stores", lambda: self.watch.at_commit, 60)
        assert self.watch.at_commit
        source, target = self.watch.at_commit
        flag_set_ms = int(self.watch.seen[-1][1] * 1000)
        assert stores.assert_equal(source, target, until_ms=flag_set_ms) > _NODES
        assert (ours := self._ours_in_target()) == set(), f"a claim is still in the target: {ours}"
        known = stores.ledger_ids(set(source) | set(self._before))
        admin = self._admins[0]
        for name in _FRESH:
            wait_for(f"the creation of {name}", lambda name=name: accepts(admin.create_topic, name), _WRITABLE_LIMIT)
        send_to(self._stack.broker_url, _FRESH)
        made = [ledger for name in _FRESH for ledger in admin.ledgers(name)]
        assert len(made) >= len(_FRESH)
        assert len(set(made)) == len(made)
        assert min(made) > max(known), "a ledger id was given twice"

    def _check_failed(self) -> None:
        left = stores.persistent(stores.read_oxia(self._stack.oxia_url, without_coordinator=False))
        assert left == set(), "the target is not empty again"
        now = stores.read_zookeeper(self._stack.zk_url, without_coordinator=False)
        ours = {path for path in self._before if path.startswith(BALLAST)}
        assert len(ours) > _NODES
        assert {path: now.get(path) for path in ours} == {path: self._before[path] for path in ours}
        assert not [path for path in now if path.endswith("/pulsar-migrate")], "the claim is still there"

    def _ours_in_target(self) -> set[str]:
        now = stores.read_oxia(self._stack.oxia_url, without_coordinator=False)
        return {path for path in now if path.startswith(stores.COORDINATOR)}

    def converge(self) -> int:
        """End the traffic, and settle its accounts; returns the number of messages that were acknowledged.

        Raises:
            AssertionError: an acknowledged message is missing, or came behind a later one of its key.
        """
        self.traffic.wait_for_more(3)
        # A send that was not acknowledged in time is no loss, so what producers met does not count.
        self.traffic.stop()
        assert self.traffic.faults() == []
        return self.traffic.sent


def put_ballast(stack: Stack) -> None:
    """Znodes that no service looks at, so that the bulk copy lasts."""
    with stores.kazoo(stack.zk_url) as client:
        client.create(BALLAST)
        pending: list[Any] = [
            client.create_async(f"{BALLAST}/{number:04}", bytes([number % 251]) * _NODE_BYTES)
            for number in range(_NODES)
        ]
        for answer in pending:
            answer.get(timeout=20)


def line(fault: MetadataRound, fault_round: FaultRound, begun: float) -> str:
    """What a round was, in one line."""
    spans = fault_round.watch.blocked()
    blocked = f"{max(spans):.1f}" if spans else "-"
    return (
        f"{fault!s:<44} {end_state(fault_round.end):<24} blocked {blocked:>5} s, took {time.monotonic() - begun:5.1f} s"
    )
