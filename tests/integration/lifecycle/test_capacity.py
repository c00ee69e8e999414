"""Long copies in a worker delay neither urgent steps nor each other; Spark's start delays no other step."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from models.lifecycle.claim import CLAIM, PacedClaim
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from models.migration_flag import FlagPhase
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.gates import Edge, Gate, Gates
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

RECORDS = 400
# Each of the 16 parts of the slow copy takes some minutes.
SLOW = 0.0001


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One ZooKeeper for all stores, and a Temporal for the workers of these tests alone."""
    return make_stack(StackSpec(zookeepers=1, temporal=True))


def plan(stack: Stack, name: str, **more: object) -> MetadataStoreInput:
    """Move a store with some records to another chroot."""
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path(f"/{name}/records")
        client.ensure_path(f"/{name}-copy")
        asked = [client.create_async(f"/{name}/records/{number:04}", b"x" * 500) for number in range(RECORDS)]
        for answer in asked:
            answer.get(timeout=30)
    wanted = {
        "cluster": name,
        "accept": stores.OTHER_ROOTS,
        "source": f"{stack.zk_url}/{name}",
        "target": f"{stack.zk_url}/{name}-copy",
        "validation_window": "PT0S",
        "allow_no_brokers": True,
    }
    return MetadataStoreInput.model_validate({"hold_before_cutover": False, **wanted, **more})


def test_a_throttled_copy_holds_up_no_other(stack: Stack, tmp_path: Path) -> None:
    """While one copies almost nothing for long, another migrates whole; a changed throttle outlasts the worker."""
    claim = f"/slow-copy{CLAIM}"

    def pace() -> PacedClaim | None:
        with stores.kazoo(stack.zk_url) as client:
            return PacedClaim.model_validate(json.loads(client.get(claim)[0])) if client.exists(claim) else None

    with WorkerProcess(stack.temporal_address, tmp_path) as worker, Operator(stack.temporal_address) as operator:
        slow = operator.start(plan(stack, "slow", throttle=SLOW))
        slow.wait_for_progress(Phase.PRE_COPY)
        report = operator.run(plan(stack, "quick", full_verify=True))
        assert report.outcome is Outcome.DONE
        assert slow.status().phase == Phase.PRE_COPY
        print(
            f"next to a throttled copy: {[(entry.phase, entry.seconds(datetime.now(UTC))) for entry in report.history]}"
        )

        slow.set_throttle(2 * SLOW)
        before = wait_for("the claim", pace, 30)
        assert before.throttle == 2 * SLOW
        worker.restart()
        # Its holder: an attempt also notes in its claim what it has found.
        after = wait_for(
            "the next attempt", lambda: now if (now := pace()) and now.holder != before.holder else None, 60
        )
        assert after.is_newer_than(before.holder)
        assert after.throttle == 2 * SLOW
        slow.set_throttle(None)
        assert slow.result().outcome is Outcome.DONE


def test_writes_are_unblocked_before_spark_is_ready(stack: Stack, tmp_path: Path) -> None:
    """A worker that starts while writes are blocked unblocks them, however long Spark takes to start.

    The first worker dies with writes blocked. Java does not start for the next one until the test lets it.
    """
    let_java_start = tmp_path / "java may start"
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\nuntil [ -e "{let_java_start}" ]; do sleep 0.1; done\nexec {shutil.which("java")} "$@"\n'
    )
    java.chmod(0o755)

    def flag() -> str:
        with stores.kazoo(f"{stack.zk_url}/held") as client:
            return json.loads(client.get(stores.FLAG)[0])["phase"]

    prepared = Gate("prepare", Edge.AFTER)
    folder = tmp_path / "gates"
    folder.mkdir()
    gates = Gates(folder)
    gates.hold(prepared)
    with Operator(stack.temporal_address) as operator:
        with FaultyWorkerProcess(stack.temporal_address, tmp_path, gates) as first:
            run = operator.start(plan(stack, "held"))
            gates.wait_reached(prepared)
            first.kill()
        assert flag() == FlagPhase.PREPARATION
        second = WorkerProcess(stack.temporal_address, tmp_path, JAVA_HOME=str(java.parents[1]))
        begun = time.monotonic()
        with second:
            # The watch was lost with the first worker, and finding it again is a job for Spark.
            assert "Spark" in str(run.wait_until_it_waits_for(WaitKind.SPARK).waiting)
            run.signal(Verb.ROLLBACK)
            wait_until_equal("unblocked writes", flag, FlagPhase.FAILED, 60)
            print(f"writes were unblocked {time.monotonic() - begun:.1f} s after the start of the worker")
            run.wait_until_it_waits_for(WaitKind.SPARK)
            let_java_start.touch()
            assert run.result().outcome is Outcome.ROLLED_BACK
