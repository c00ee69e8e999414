"""One migration with one fault: everything that happens, and everything that must hold afterwards."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

from temporalio.service import RPCError

from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.migration_flag import BLOCKING_PHASES, FlagPhase
from pulsar_devstack.servers.admin import StackAdmin, accepts
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.faults.lifecycle import fault_round
from tests.faults.lifecycle.environment import FaultEnvironment
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

_END_LIMIT = 200.0
_WRITABLE_LIMIT = 30.0
BLOCKED_LIMIT = 60.0 + 45.0
"""The plan's `blocked_deadline`; and what it may take to notice that a worker is gone and to start another one."""

_TO_DELETE = [f"to-delete-{number}" for number in range(3)]
_FRESH_TOPICS = 5
_ROLLBACK_AT = Gate("copy_changes", Edge.BEFORE)
_CHANGES: dict[str, dict[str, object]] = {
    "catch_up": {"hold_before_cutover": True},
    # Late writes are followed at each look of the window.
    "follow": {"validation_window": "PT20S"},
}
"""What the plan of a migration says besides, by the step that is hit."""
_PRECHECK = Gate("precheck", Edge.BEFORE)
_SERVERS = {"broker": "broker-2", "bookie": "bookie-1", "zookeeper": "zookeeper-1", "oxia": "oxia-1"}
"""Servers by their names among the victims."""


class FaultRound(fault_round.FaultRound[MetadataRound]):
    """A migration of the cluster that was taken last, while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        stacks: gives the cluster; the next one is started while this one's end is looked at.
    """

    def __init__(self, environment: FaultEnvironment, stacks: StackPool) -> None:
        super().__init__(environment, stacks.current.stack)
        self._stacks = stacks
        self._ensemble = stacks.current.ensemble
        self._admins = [StackAdmin(url) for url in self.stack.admin_urls]
        self._fresh = itertools.count()

    def begin(self, opened: ExitStack) -> Traffic:
        """Put records into the source that the copy must read, and begin to watch the flag."""
        for admin in self._admins:
            opened.callback(admin.close)
        send_to(self.stack.broker_url, _TO_DELETE)
        put_ballast(self.stack)
        traffic = opened.enter_context(Traffic.here(self.stack.broker_url, ["flow-0", "flow-1"]))
        traffic.wait_for_more(5)
        self.watch = opened.enter_context(FlagWatch(self.stack))
        self._before = stores.read_zookeeper(self.stack.zk_url)
        return traffic

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: MetadataRound) -> None:
        """Migrate, hit the victim at its moment, and wait until the migration has ended and all servers are back."""
        environment = self.environment
        if fault.step in BACK:
            environment.gates.hold(_ROLLBACK_AT)
        environment.gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        if fault.step == "unblock_leftover":
            self._leave_blocked()
            environment.gates.hold(_PRECHECK)
        changes: dict[str, object] = {"throttle": _SLOW} if fault.long_pre_copy else {}
        changes.update(_CHANGES.get(fault.step, {}))
        if fault.victim == Victim.FOLLOWER_SLOW:
            assert self._ensemble
            changes["source"] = str(self._ensemble.url(self._ensemble.follower()))
        elif fault.victim.of_link:
            self._link = self.opened.enter_context(Proxy(self.stack["zookeeper-1"].address))
            changes["source"] = f"zk:{self._link.address}"
        run = environment.operator.start(input(self.stack, **changes))
        if back := _PRECHECK if fault.step == "unblock_leftover" else _ROLLBACK_AT if fault.step in BACK else None:
            environment.gates.wait_reached(back)
            run.signal(Verb.ROLLBACK)
        if fault.step == "set_speed":
            run.wait_for_phase("PRE_COPY")
            thread = self.opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="speed"))
            # It is answered when the step is, of which another attempt may be the one that ends.
            thread.submit(run.set_throttle, _SLOW)
        frozen = self.hit_at_gate(fault)
        if fault.step == "catch_up":
            run.signal(Verb.PROCEED)
        self.wait_end(run)
        self.hits.wait_all_back()
        if fault.late:
            self._continue_late_attempt(fault, frozen)

    def _leave_blocked(self) -> None:
        """Terminate a run while metadata writes are blocked."""
        gates = self.environment.gates
        gates.hold(_ROLLBACK_AT)
        run = self.environment.operator.start(input(self.stack))
        gates.wait_reached(_ROLLBACK_AT)
        run.terminate()
        gates.release(_ROLLBACK_AT)
        gates.wait_ended(_ROLLBACK_AT)
        assert self.watch.phase in BLOCKING_PHASES, "no worker unblocks writes after a termination"

    def wait_end(self, run: Run) -> None:
        """Wait for the end of the migration.

        Raises:
            AssertionError: it did not end in time, or not as a migration ends.
        """
        try:
            self.end = self.environment.end_of(run, _END_LIMIT)
        except AssertionError:
            # The next round starts a migration of the same name.
            with suppress(RPCError):
                run.terminate()
            raise
        self._stacks.prepare()

    def server(self, victim: str, fault: MetadataRound) -> Server:
        """Return a server by its name among the victims."""
        if victim == Victim.LEADER:
            assert self._ensemble
            return self._ensemble.leader()
        return self.stack[_SERVERS[victim]]

    def link(self, victim: str) -> Proxy:
        """Return the worker's link to ZooKeeper, or that of a follower to its leader."""
        if victim == "follower":
            assert self._ensemble
            return self._ensemble.link(self._ensemble.follower())
        return self._link

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _continue_late_attempt(self, fault: MetadataRound, frozen: FaultyWorkerProcess | None) -> None:
        """Continue the lost attempt after a run has committed and brokers have changed the target."""
        if not self.completed:
            wait_for("writes that are free", lambda: self.watch.phase not in BLOCKING_PHASES, 10)
            self.migrate_again()
        self._use_target()
        before = stores.read_oxia(self.stack.oxia_url)
        self.resume_attempt(fault, frozen)
        after = stores.read_oxia(self.stack.oxia_url)
        self._check_nothing_overwritten(before, after)

    def _use_target(self) -> None:
        admin = self._admins[0]
        for name in _TO_DELETE:
            wait_for(f"the deletion of {name}", lambda name=name: accepts(admin.delete_topic, name), _WRITABLE_LIMIT)
        self.traffic.wait_for_more(5)

    def _check_nothing_overwritten(self, before: stores.Records, after: stores.Records) -> None:
        back = {path for path in stores.persistent(after) - set(before) if path in self._before}
        assert back == set(), "a late attempt wrote what brokers had deleted"
        older = {path for path in before if path in after and after[path].version < before[path].version}
        assert older == set(), "a late attempt wrote older versions"
        assert (ours := self._ours_in_target()) == set(), f"a late attempt claimed the target: {ours}"

    # What must hold -----------------------------------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Whether the migration says that it committed."""
        return isinstance(self.end, Report) and self.end.outcome is Outcome.DONE

    def check_round(self, fault: MetadataRound) -> None:
        """Check the end, and migrate again if it failed.

        Raises:
            AssertionError: a promise is broken.
        """
        self.check()
        if not self.completed:
            self.migrate_again()
        self.converge()

    def interruption(self) -> tuple[str, float | None]:
        """Return the longest block of writes."""
        return "blocked", max(self.watch.blocked(), default=None)

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
        """Start the same migration again, without a fault; it must complete.

        Raises:
            AssertionError: it did not.
        """
        failed = self.end
        self.wait_end(self.environment.operator.start(input(self.stack)))
        assert self.completed, f"after {failed!r}: {self.end!r}"
        self.check()

    def _check_completed(self) -> None:
        wait_for("the look at both stores", lambda: self.watch.at_commit, 60)
        assert self.watch.at_commit
        source, target = self.watch.at_commit
        flag_set_ms = int(self.watch.seen[-1][1] * 1000)
        assert stores.assert_equal(source, target, until_ms=flag_set_ms) > _NODES
        assert (ours := self._ours_in_target()) == set(), f"a claim is still in the target: {ours}"
        known_ledgers = stores.ledger_ids(set(source) | set(self._before))
        admin = self._admins[0]
        # A round with a late attempt is checked before and after that one: names of an earlier check are taken.
        fresh = [f"fresh-{next(self._fresh)}" for _ in range(_FRESH_TOPICS)]
        for name in fresh:
            wait_for(f"the creation of {name}", lambda name=name: accepts(admin.create_topic, name), _WRITABLE_LIMIT)
        send_to(self.stack.broker_url, fresh)
        made = [ledger for name in fresh for ledger in admin.ledgers(name)]
        assert len(made) >= len(fresh)
        assert len(set(made)) == len(made)
        assert min(made) > max(known_ledgers), "a ledger id was given twice"

    def _check_failed(self) -> None:
        remaining = stores.persistent(stores.read_oxia(self.stack.oxia_url, without_coordinator=False))
        assert remaining == set(), "the target is not empty again"
        now = stores.read_zookeeper(self.stack.zk_url, without_coordinator=False)
        ours = {path for path in self._before if path.startswith(BALLAST)}
        assert len(ours) > _NODES
        assert {path: now.get(path) for path in ours} == {path: self._before[path] for path in ours}
        assert not [path for path in now if path.endswith("/pulsar-migrate")], "the claim is still there"

    def _ours_in_target(self) -> set[str]:
        now = stores.read_oxia(self.stack.oxia_url, without_coordinator=False)
        return {path for path in now if path.startswith(stores.COORDINATOR)}

    def converge(self) -> None:
        """Check that messages continue, and end the traffic.

        Raises:
            AssertionError: an acknowledged message is missing, or came after a later one of its key.
        """
        self.traffic.wait_for_more(3)
        self.end_traffic()


def put_ballast(stack: Stack) -> None:
    """Create znodes that no service reads, so that the bulk copy takes longer."""
    with stores.kazoo(stack.zk_url) as client:
        client.create(BALLAST)
        pending: list[Any] = [
            client.create_async(f"{BALLAST}/{number:04}", bytes([number % 251]) * _NODE_BYTES)
            for number in range(_NODES)
        ]
        for answer in pending:
            answer.get(timeout=20)
