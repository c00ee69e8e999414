"""Brokers that stop and start in a switch by restart: commands that are slow, orders that are late, half starts.

The tests share one cluster and run in their order: each starts where the one before left the cluster.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from activities.bookie_cluster import brokers, registry
from activities.lifecycle.context import ActivityContext
from activities.pulsar.registrations import brokers as registered
from activities.pulsar.registrations import brokers_mark
from models.bookie_cluster.input import BookieClusterInput, BrokerControl, Direction, Proof
from models.bookie_cluster.phases import Phase
from models.lifecycle.status import Outcome, Undo
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

TOPIC, MESSAGES = "kept", 20
LIMIT = 240.0
BROKERS = ("broker-1", "broker-2")

_SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
here, action, program = Path(__file__).parent, sys.argv[1], sys.argv[2:]
order = {"action": action, "direction": os.environ["SWITCH_DIRECTION"], "epoch": int(os.environ["SWITCH_EPOCH"])}
def note(what):
    with (here / "orders").open("a") as log:
        log.write(json.dumps({**order, "what": what}) + "\\n")
note("begins")
while (here / f"hold-{action}-{order['direction']}").exists():
    time.sleep(0.05)
done = subprocess.run(program, check=False).returncode
note("done" if not done else "failed")
sys.exit(done)
"""


class Place:
    """The cluster, who switches it, and the command that stops and starts its brokers.

    Args:
        stack: with a bookie in each of two clusters, and two brokers.
        operator: starts switches.
        folder: of the command.

    Attributes:
        steps: without a worker; none of those here needs Spark.
    """

    def __init__(self, stack: Stack, operator: Operator, folder: Path) -> None:
        self.stack, self.operator, self._folder = stack, operator, folder
        self.steps = Steps(cast("SparkEngine", None))

    def input(self, control: BrokerControl, **more: object) -> BookieClusterInput:
        """Return the plan from the first bookies to the second ones."""
        input = {
            "cluster": "brokers",
            "metadata_url": self.stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": self.stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": self.stack.second_bookkeeper_uri},
            "routing": "restart",
            "advance_ids": True,
            "broker_control": control,
        }
        return BookieClusterInput.model_validate({"hold_before_cutover": False, **input, **more})

    def hold(self, action: str, direction: Direction) -> None:
        """Make the command run indefinitely."""
        (self._folder / f"hold-{action}-{direction}").touch()

    def orders(self) -> list[str]:
        """Return what the command was asked for, and did, since the last call of `forget`."""
        path = self._folder / "orders"
        orders = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        assert [order["epoch"] for order in orders] == sorted(order["epoch"] for order in orders)
        return [f"{order['action']} {order['direction']} {order['what']}" for order in orders]

    def release(self) -> None:
        """Release the command."""
        for path in self._folder.glob("hold-*"):
            path.unlink()

    def forget(self) -> None:
        """Release the command, and forget what it did."""
        self.release()
        (self._folder / "orders").unlink(missing_ok=True)

    def runs(self) -> bool:
        """Return whether the command runs anywhere."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(self._folder).encode() in path.read_bytes():
                    return True
        return False

    def send(self) -> None:
        """Write messages."""
        with closing(quiet_client(self.stack.broker_url)) as client:
            producer = client.create_producer(topic_url(TOPIC))
            for number in range(MESSAGES):
                producer.send(str(number).encode())

    def read(self) -> list[int]:
        """Return all messages, in their order."""
        with closing(quiet_client(self.stack.broker_url)) as client:
            reader = client.create_reader(topic_url(TOPIC), pulsar.MessageId.earliest)
            numbers: list[int] = []
            while reader.has_message_available():
                numbers.append(int(reader.read_next(30_000).data()))
            return numbers


@pytest.fixture(scope="module")
def place(make_stack: MakeStack, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """Two bookie clusters of one bookie each, two brokers, and a worker with the command."""
    settings = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
    stack = make_stack(
        StackSpec(
            zookeepers=1,
            bookies=1,
            second_bookies=1,
            brokers=2,
            temporal=True,
            cluster="brokers",
            broker_settings=settings,
        )
    )
    folder = tmp_path_factory.mktemp("command")
    script = folder / "control.py"
    script.write_text(_SCRIPT)

    def command(action: str) -> str:
        program = [sys.executable, "-m", "pulsar_migrate", "dev", f"{action}-brokers", "--folder", str(stack.folder)]
        return json.dumps([sys.executable, str(script), action, *program])

    with (
        WorkerProcess(
            stack.temporal_address,
            tmp_path_factory.mktemp("worker"),
            PULSAR_MIGRATE_BROKER_STOP_COMMAND=command("stop"),
            PULSAR_MIGRATE_BROKER_START_COMMAND=command("start"),
        ),
        Operator(stack.temporal_address) as operator,
    ):
        yield Place(stack, operator, folder)


@pytest.mark.exhaustive
def test_a_slow_stop_ends_with_its_switch(place: Place) -> None:
    """A rollback ends the stop command with all that it began; brokers that never stopped are proven to write."""
    place.send()
    place.hold("stop", Direction.FORWARD)
    run = place.operator.start(place.input(BrokerControl.COMMAND))
    wait_for("the stop command", place.orders, LIMIT)
    assert place.runs()
    run.signal(Verb.ROLLBACK)
    report = run.result(LIMIT)

    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    assert not place.runs()
    assert place.orders() == ["stop forward begins", "start back begins", "start back done"]
    assert len(report.certificate["brokers_on_the_source"]) == len(BROKERS)
    place.forget()
    assert place.read() == list(range(MESSAGES))


@pytest.mark.exhaustive
def test_a_rollback_stops_brokers_that_are_starting(place: Place) -> None:
    """No broker is registered while the start command is slow: a rollback stops all the same before it copies back."""
    place.hold("start", Direction.FORWARD)
    run = place.operator.start(place.input(BrokerControl.COMMAND))
    wait_for("the start command", lambda: "start forward begins" in place.orders(), LIMIT)
    assert run.status().phase == Phase.PROMOTE
    run.signal(Verb.ROLLBACK)
    report = run.result(LIMIT)

    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    assert place.orders() == [
        "stop forward begins",
        "stop forward done",
        "start forward begins",
        "stop back begins",
        "stop back done",
        "start back begins",
        "start back done",
    ]
    place.forget()
    assert place.read() == list(range(MESSAGES))


@pytest.mark.exhaustive
def test_a_broker_that_starts_on_the_target_during_the_rollback_loses_nothing(place: Place) -> None:
    """Its ledgers are copied back too: all brokers stop again, before those on the source remove them from lists."""
    before = place.read()
    run = place.operator.start(place.input(BrokerControl.COMMAND))
    run.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT)
    place.forget()
    place.hold("start", Direction.BACK)
    run.signal(Verb.ROLLBACK)
    wait_for("the start command", lambda: "start back begins" in place.orders(), LIMIT)
    place.stack.use_bookies(place.stack.second_bookkeeper_uri, ["broker-2"])
    place.stack["broker-2"].start()
    place.send()
    place.release()
    report = run.result(LIMIT)

    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    once = ["stop back begins", "stop back done", "start back begins", "start back done"]
    assert place.orders() == [*once, *once]
    assert any("brokers stop again" in note for note in report.notes), report.notes
    place.forget()
    assert place.read() == [*before, *range(MESSAGES)]


def test_stopped_means_that_nothing_answers(place: Place) -> None:
    """A frozen broker whose session has expired still answers at its port; the absence counts from the first one's end.

    Another attempt counts from the same moment.
    """
    steps, input = place.steps, place.input(BrokerControl.MANUAL)
    steps.run(registry.register, input)
    frozen = place.stack["broker-2"]
    task = steps.task(input)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(brokers.stop, task, Direction.FORWARD)
        wait_until_equal("the wait for both", lambda: said(task.context).count("is registered"), 2, 30)
        frozen.pause()
        gone = datetime.now(UTC)
        place.stack["broker-1"].stop()
        ended = datetime.now(UTC)
        wait_for("the frozen broker's session to expire", lambda: "still answers at" in said(task.context), 90)
        frozen.kill()
        stopped = pending.result(timeout_for(60))

    assert len(stopped.brokers) == len(BROKERS)
    # The step checks every 5 s, and counts from its last check before the first one stopped.
    assert gone - timedelta(seconds=6) < stopped.since < ended + timedelta(seconds=5)
    again = steps.run(brokers.stop, input, Direction.FORWARD)
    assert (again.since, again.brokers) == (stopped.since, stopped.brokers)


def test_a_broker_that_registered_and_left_is_noticed(place: Place) -> None:
    """Between the copy and the directive no broker may have come: the directive is not given."""
    steps, input = place.steps, place.input(BrokerControl.MANUAL)
    with steps.task(input).broker_store() as store:
        mark = brokers_mark(store)
        place.stack["broker-1"].start()
        place.stack["broker-1"].stop()
        wait_for("no broker to be registered", lambda: not registered(store), 30)
        task = steps.task(input)
        with task.registry() as opened:
            before = opened.switch_target()
        assert not registry.set_target(task, Direction.FORWARD, mark).alone
        with task.registry() as opened:
            assert opened.switch_target() == before
        # ZooKeeper deletes the empty parent of registrations within a minute, and that counts as a change, too.
        assert any(
            registry.set_target(steps.task(input), Direction.FORWARD, brokers_mark(store)).alone for _ in range(2)
        )


def test_started_means_all_of_them_on_the_right_side(place: Place) -> None:
    """One of two brokers is not enough, and one that starts late on the other cluster is named, with what to do."""
    steps, input = place.steps, place.input(BrokerControl.MANUAL)
    task = steps.task(input)
    place.stack.use_bookies(place.stack.bookkeeper_uri)
    place.stack["broker-1"].start()
    with ThreadPoolExecutor(1) as pool:
        # Not what the misplaced broker writes: whether the source has a ledger of its id depends on earlier switches.
        pending = pool.submit(brokers.start, task, Direction.BACK, Proof.FULL, Undo.NONE)
        wait_for("the wait for the second broker", lambda: "1 of 2 brokers run" in said(task.context), 60)
        place.stack.use_bookies(place.stack.second_bookkeeper_uri, ["broker-2"])
        place.stack["broker-2"].start()
        wait_for("the misplaced broker", lambda: "at once, and start with" in said(task.context, action=True), 60)
        place.stack.use_bookies(place.stack.bookkeeper_uri, ["broker-2"])
        on = pending.result(timeout_for(120))
    assert len(on.brokers) == on.new_ledgers == len(BROKERS)
    assert on.away_since is not None
    assert on.away_since < on.since


def said(context: ActivityContext, *, action: bool = False) -> str:
    """Return what a step waits for, or the action that it asks for."""
    reason = context.report().waiting
    return (reason.action if action else reason.why) if reason else ""
