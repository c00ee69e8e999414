"""Every rollback of a live migration, on one cluster; at last it is migrated.

The tests run in their order. Phases are held where they are by freezing a server that they need.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from models.migration_flag import BLOCKING_PHASES, FlagPhase
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.runner import Traffic
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.operator import Run
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_for

CLUSTER = "back"
BULK = [f"/bulk/{number:04}" for number in range(3_000)]
# What is frozen must keep its session, and thus its place among the participants, for longer than a test.
LONG_SESSIONS = {"metadataStoreSessionTimeoutMillis": "150000"}
LONG_BOOKIE_SESSIONS = {"zkTimeout": "150000"}


@dataclass
class Cluster:
    """A cluster with records enough for a copy that takes its time."""

    stack: Stack
    admin: StackAdmin
    source: Any
    before: stores.Tree = field(default_factory=stores.Tree)

    def input(self, **more: object) -> MetadataStoreInput:
        """Return the plan from ZooKeeper to Oxia."""
        return MetadataStoreInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": CLUSTER,
                "accept": stores.OTHER_ROOTS,
                "source": self.stack.zk_url,
                "target": self.stack.oxia_url,
                **more,
            }
        )

    @property
    def oxia(self) -> Server:
        """The target's server."""
        return self.stack["oxia-1"]

    def flag(self) -> FlagPhase:
        """Return the phase of the flag."""
        if self.source.exists(stores.FLAG) is None:
            return FlagPhase.NOT_STARTED
        return FlagPhase(json.loads(self.source.get(stores.FLAG)[0])["phase"])

    def fill(self, round_: bytes) -> None:
        """Set all bulk nodes to new values, past the brokers, who would refuse to write now."""
        asked = [self.source.set_async(path, round_ + b"x" * 200) for path in BULK]
        for answer in asked:
            answer.get(timeout=30)

    def remember(self) -> None:
        """Read what the source must still be after the rollback."""
        self.before = stores.read_zookeeper(self.stack.zk_url)

    def must_be_as_before(self, flag: FlagPhase) -> None:
        """Check a rollback: the flag, an untouched source, an empty target, and brokers that write metadata again."""
        assert self.flag() is flag
        after = stores.read_zookeeper(self.stack.zk_url)
        assert stores.changes(self.before, after) == {}
        remaining = stores.read_oxia(self.stack.oxia_url, without_coordinator=False)
        assert stores.persistent(remaining) == set()
        wait_for("a write of metadata", lambda: self.admin.can_write(CLUSTER), 30)


@pytest.fixture(scope="module")
def cluster(make_stack: MakeStack, environment: Environment) -> Generator[Cluster]:
    """Two brokers and a bookie, and an empty Oxia."""
    spec = StackSpec(
        zookeepers=1,
        oxias=1,
        bookies=1,
        brokers=2,
        cluster=CLUSTER,
        broker_settings=LONG_SESSIONS,
        bookie_settings=LONG_BOOKIE_SESSIONS,
    )
    stack = make_stack(spec)
    admin = StackAdmin(stack.admin_urls[0])
    with stores.kazoo(stack.zk_url) as source:
        source.ensure_path("/bulk")
        asked = [source.create_async(path, b"x" * 200) for path in BULK]
        for answer in asked:
            answer.get(timeout=30)
        yield Cluster(stack, admin, source)
    admin.close()


class FlagWatch:
    """Freezes a server as soon as the flag shows a phase.

    Args:
        cluster: whose flag.
        server: to be frozen.
        phase: when; None for never.
    """

    def __init__(self, cluster: Cluster, server: Server, phase: FlagPhase) -> None:
        self.seen = threading.Event()
        self._server = server
        self._phase = phase.value.encode()
        cluster.source.DataWatch(stores.FLAG, self._check)

    def _check(self, value: bytes | None, _stat: object) -> bool | None:
        """Freeze the server in the wanted phase; return False to end the watch."""
        if value is None or b'"' + self._phase + b'"' not in value:
            return None
        self._server.pause()
        self.seen.set()
        return False


@contextmanager
def prepared(cluster: Cluster, environment: Environment, **changes: object) -> Generator[Run]:
    """Start a migration that stays in PREPARATION, with a target that is frozen.

    A bookie is frozen until the target is: without the target the flag would not be set.
    """
    run = environment.operator.start(cluster.input(hold_before_cutover=True, **changes))
    run.wait_until_it_waits_for(WaitKind.HOLD, phase=Phase.CATCH_UP)
    bookie = cluster.stack["bookie-1"]
    bookie.pause()
    try:
        run.signal(Verb.PROCEED)
        _wait_for_flag(cluster, FlagPhase.PREPARATION)
        cluster.oxia.pause()
    finally:
        bookie.resume()
    try:
        yield run
    finally:
        cluster.oxia.resume()


def test_a_rehearsal(cluster: Cluster, environment: Environment) -> None:
    """A rehearsal copies and compares everything next to the brokers, and leaves both stores as they were."""
    cluster.remember()
    flag = cluster.flag()
    run = environment.operator.start(cluster.input(until="PRE_COPY", hold_before_cutover=True))
    report = run.result()
    assert report.outcome is Outcome.REHEARSED
    assert report.certificate["compared_in_pre_copy"] >= len(BULK)
    assert (report.certificate["differences"], report.figures["blocked_seconds"]) == (0, 0)
    assert cluster.flag() in {flag, FlagPhase.FAILED}
    cluster.must_be_as_before(cluster.flag())


@pytest.mark.exhaustive
def test_a_participant_that_is_never_ready(cluster: Cluster, environment: Environment) -> None:
    """A frozen broker ends the migration by its name before writes are blocked; both brokers write metadata later."""
    cluster.remember()
    flag = cluster.flag()
    run = environment.operator.start(cluster.input(preparation_timeout="PT15S"))
    run.wait_for_phase(Phase.PRE_COPY)
    broker = cluster.stack["broker-2"]
    broker.pause()
    try:
        failure = run.failure()
        assert failure.type == FailureKind.NOT_READY
        assert f"broker 127.0.0.1:{broker.ports['http']}" in str(failure)
        assert f"broker 127.0.0.1:{cluster.stack['broker-1'].ports['http']}" not in str(failure)
        cluster.must_be_as_before(flag)
    finally:
        broker.resume()
    other = StackAdmin(cluster.stack.admin_urls[1])
    wait_for("a write by the broker that was frozen", lambda: other.can_write(CLUSTER), 60)
    other.close()


@pytest.mark.exhaustive
def test_rollback_while_copying_during_traffic(cluster: Cluster, environment: Environment) -> None:
    """A rollback in PRE_COPY ends the copy, which a throttle made slow, and the brokers never notice."""
    cluster.remember()
    flag = cluster.flag()
    run = environment.operator.start(cluster.input(throttle=0.02))
    run.wait_for_phase(Phase.PRE_COPY)
    wait_for("copied records", lambda: stores.persistent(stores.read_oxia(cluster.stack.oxia_url)), 60)
    assert cluster.admin.can_write(CLUSTER)
    cluster.remember()
    run.signal(Verb.ROLLBACK, "changed my mind")
    report = run.result()
    assert report.outcome is Outcome.ROLLED_BACK
    assert any("rollback (changed my mind)" in note for note in report.notes)
    cluster.must_be_as_before(flag)


@pytest.mark.parametrize(
    "phase", [pytest.param(BLOCKING_PHASES[0], marks=pytest.mark.exhaustive), *BLOCKING_PHASES[1:]]
)
def test_rollback_with_writes_blocked(cluster: Cluster, environment: Environment, phase: FlagPhase) -> None:
    """A rollback in PREPARATION or COPYING, while the target does not answer, gives the writes back before it does."""
    # The flag is COPYING also in VERIFY, which a comparison of everything makes last.
    phases = {phase.value, Phase.VERIFY.value} if phase is FlagPhase.COPYING else {phase.value}
    with prepared(cluster, environment, full_verify=True) as run:
        # Brokers see the flag some time after this test.
        wait_for("writes to be blocked", lambda: not cluster.admin.can_write(CLUSTER), 30)
        # Now only this test writes to the source.
        cluster.fill(phase.value.encode())
        cluster.remember()
        if phase is FlagPhase.COPYING:
            watch = FlagWatch(cluster, cluster.oxia, phase)
            cluster.oxia.resume()
            assert watch.seen.wait(timeout_for(60))
        run.signal(Verb.ROLLBACK)
        _wait_for_flag(cluster, FlagPhase.FAILED)
    report = run.result()
    assert report.outcome is Outcome.ROLLED_BACK
    (ended,) = [entry.phase for entry in report.history if entry.outcome is Outcome.ROLLED_BACK]
    assert ended in phases
    cluster.must_be_as_before(FlagPhase.FAILED)


@pytest.mark.exhaustive
def test_rollback_while_verifying(cluster: Cluster, environment: Environment) -> None:
    """A rollback in VERIFY, the last phase before the commit, leaves the source in charge."""
    with prepared(cluster, environment, full_verify=True) as run:
        cluster.fill(b"verify")
        cluster.remember()
    run.wait_for_phase(Phase.VERIFY)
    run.signal(Verb.ROLLBACK)
    report = run.result()
    assert report.outcome is Outcome.ROLLED_BACK
    assert report.history[-2].phase == Phase.VERIFY
    cluster.must_be_as_before(FlagPhase.FAILED)


@pytest.mark.exhaustive
def test_the_deadline_is_kept_without_temporal(cluster: Cluster, environment: Environment) -> None:
    """The worker that blocked writes gives them back when Temporal is frozen; the migration fails when it is back."""
    temporal = environment.stack["temporal"]
    with prepared(cluster, environment, blocked_deadline="PT15S", preparation_timeout="PT15S") as run:
        cluster.remember()
        begun = time.monotonic()
        temporal.pause()
        try:
            _wait_for_flag(cluster, FlagPhase.FAILED)
            print(f"unblocked without Temporal after {time.monotonic() - begun:.1f} s; the deadline was 15 s")
            wait_for("a write of metadata", lambda: cluster.admin.can_write(CLUSTER), 30)
            cluster.remember()
        finally:
            temporal.resume()
    run.failure()
    cluster.must_be_as_before(FlagPhase.FAILED)


@pytest.mark.exhaustive
def test_the_next_attempt_succeeds(cluster: Cluster, environment: Environment) -> None:
    """After all these failures a start with the same workflow id migrates the cluster, under traffic.

    Of its two brokers one has taken part in all attempts before and the other has started after them, so that only
    the latter is a participant; what both hold in the target is what they hold in the source.
    """
    cluster.stack["broker-2"].stop()
    cluster.stack["broker-2"].start()
    with Traffic.here(cluster.stack.broker_url, ["flow"]) as traffic:
        traffic.wait_for_more(10)
        report = environment.operator.run(cluster.input(validation_window="PT0S"))
        assert report.outcome is Outcome.DONE
        assert cluster.flag() is FlagPhase.COMPLETED
        commit = stores.committed_ms(cluster.stack.zk_url)
        tree, records = stores.read_zookeeper(cluster.stack.zk_url), stores.read_oxia(cluster.stack.oxia_url)
        assert stores.assert_equal(tree, records, until_ms=commit) > len(BULK)
        owners = {path: node.value for path, node in tree.items() if node.ephemeral and path.startswith("/namespace/")}
        assert owners
        assert {path: records[path].value for path in owners} == owners
        assert cluster.admin.can_write(CLUSTER)
        cluster.admin.create_topic("after")
        traffic.wait_for_more(10)
        assert traffic.verify() > 20


def _wait_for_flag(cluster: Cluster, phase: FlagPhase) -> None:
    wait_for(f"the flag {phase}", lambda: cluster.flag() is phase, 60)
