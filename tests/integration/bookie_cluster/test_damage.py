"""Whole switches by restart of ledgers that are damaged, with brokers stopped and started by command and by webhook.

The tests share one cluster and run in their order: from A to B, then back to A by switches of their own.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.stores import Access
from models.bookie_cluster.input import BookieClusterInput, BrokerControl
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Concurrency, ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import failed_lines
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.bookie_cluster.broker_webhook import TOKEN, BrokerWebhook
from tests.support.clients.bookies import Cluster, Written, pack
from tests.support.lifecycle.hook_receiver import SECRET
from tests.support.lifecycle.operator import Operator, Run
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.stacks import MakeStack

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

MESSAGES, IN_LEDGER = 25, 10
OVERHEAD = 36
"""Bytes of an entry's header and digest."""
LIMIT = 240.0
SLOW = 0.001
"""Megabytes per second: at this pace a few topics take many seconds."""

pytestmark = pytest.mark.exhaustive


class Place:
    """The cluster, and who switches it.

    Args:
        stack: with bookies, second bookies and a broker.
        operator: starts switches.
        webhook: is asked to stop and start brokers.

    Attributes:
        lost: the ledger whose entry 3 no bookie has as it was written.
        taken: the ledger whose id another ledger has in the target.
    """

    lost: int
    taken: int

    def __init__(self, stack: Stack, operator: Operator, webhook: BrokerWebhook) -> None:
        self.stack, self.operator, self.webhook = stack, operator, webhook

    def input(self, source: str, target: str, control: BrokerControl, **more: object) -> BookieClusterInput:
        """Return the plan from one of `a` and `b` to the other."""
        addresses = {"a": self.stack.bookkeeper_uri, "b": self.stack.second_bookkeeper_uri}
        input = {
            "cluster": "damage",
            "metadata_url": self.stack.zk_url,
            "source": {"name": source, "metadataServiceUri": addresses[source]},
            "target": {"name": target, "metadataServiceUri": addresses[target]},
            "routing": "restart",
            "advance_ids": True,
            # No topic refers to some of the ledgers that these tests damage.
            "ledgers": "all",
            "exclusive": True,
            "broker_control": control,
        }
        return BookieClusterInput.model_validate({"hold_before_cutover": False, **input, **more})

    @contextmanager
    def ledgers(self, name: str) -> Generator[Cluster]:
        """Open the ledgers and bookies of `a` or `b`."""
        input = self.input(name, "b" if name == "a" else "a", BrokerControl.MANUAL)
        with (
            LedgerDirectoryWriter(input.source.root, Access()) as directory,
            Bookies(directory.bookies) as bookies,
        ):
            yield Cluster(directory, bookies)

    def fill(self, *topics: str) -> None:
        """Write messages to topics, whose ledgers take ten of them, and which a subscription keeps from ageing."""
        client = quiet_client(self.stack.broker_url)
        for topic in topics:
            client.subscribe(topic_url(topic), "keeper").close()
            producer = client.create_producer(topic_url(topic))
            for number in range(MESSAGES):
                producer.send(text(number))
        client.close()

    def read(self, topic: str) -> list[bytes]:
        """Return all messages of a topic."""
        client = quiet_client(self.stack.broker_url)
        reader = client.create_reader(topic_url(topic), pulsar.MessageId.earliest)
        messages = [reader.read_next(30_000).data() for _ in range(MESSAGES)]
        assert not reader.has_message_available()
        client.close()
        return messages


@pytest.fixture(scope="module")
def place(make_stack: MakeStack, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """Two bookie clusters of two bookies each, a broker, and a worker that knows how to stop and start it."""
    stack = make_stack(
        StackSpec(
            zookeepers=1,
            bookies=2,
            second_bookies=2,
            brokers=1,
            temporal=True,
            cluster="damage",
            broker_settings={
                "managedLedgerMaxEntriesPerLedger": str(IN_LEDGER),
                "managedLedgerMinLedgerRolloverTimeMinutes": "0",
            },
        )
    )
    program = [sys.executable, "-m", "pulsar_migrate", "dev"]
    folder = ["--folder", str(stack.folder)]
    with (
        BrokerWebhook(stack) as webhook,
        WorkerProcess(
            stack.temporal_address,
            tmp_path_factory.mktemp("worker"),
            PULSAR_MIGRATE_BROKER_STOP_COMMAND=json.dumps([*program, "stop-brokers", *folder]),
            PULSAR_MIGRATE_BROKER_START_COMMAND=json.dumps([*program, "start-brokers", *folder]),
            PULSAR_MIGRATE_BROKER_WEBHOOK=webhook.url,
            PULSAR_MIGRATE_BROKER_WEBHOOK_TOKEN=TOKEN,
            PULSAR_MIGRATE_BROKER_WEBHOOK_SECRET=SECRET,
            PULSAR_MIGRATE_ALLOW_PLAIN="true",
        ),
        Operator(stack.temporal_address) as operator,
    ):
        yield Place(stack, operator, webhook)


def text(number: int) -> bytes:
    """Return a message."""
    return f"message {number}".encode() * 10


def full_ledgers(cluster: Cluster, topic: str) -> list[Written]:
    """Return the closed ledgers of a topic that hold as many messages as fit, with their entries."""
    owner = f"public/default/persistent/{topic}".encode()
    records = [record for batch in cluster.directory.scan() for record in batch]
    full = [
        record
        for record in records
        if record.metadata.custom_map.get("pulsar/managed-ledger") == owner
        and record.metadata.last_entry == IN_LEDGER - 1
    ]
    return [written(cluster, record) for record in sorted(full)]


def written(cluster: Cluster, record: LedgerRecord) -> Written:
    """Return an existing ledger with its entries."""
    bare = Written(record.ledger_id, record.metadata, [])
    return Written(record.ledger_id, record.metadata, cluster.read(bare))


def write_damaged(cluster: Cluster, bad: Sequence[str]) -> Written:
    """Write a closed ledger of whose entry 3 these bookies have a copy in which one bit is wrong.

    It is written so from the start: of an entry that is written again, a bookie may give the old copy.
    """
    bookies = sorted(cluster.directory.bookies())
    ledger = cluster.open([(0, bookies)])
    datas = list(map(text, range(IN_LEDGER)))
    bodies = pack(ledger, datas)
    for entry, body in enumerate(bodies):
        for bookie in bookies:
            wrong = entry == 3 and bookie in bad
            cluster.put(ledger, entry, body[:-1] + bytes([body[-1] ^ 1]) if wrong else body, bookie)
    closed = replace(ledger.metadata, state=LedgerState.CLOSED, last_entry=len(datas) - 1, length=sum(map(len, datas)))
    cluster.directory.update([(ledger.ledger_id, closed, 0)])
    return Written(ledger.ledger_id, closed, bodies)


def ledger_of(cluster: Cluster, ledger_id: int) -> LedgerRecord | None:
    """Return the ledger that has an id, None if there is none."""
    (record,) = cluster.directory.read([ledger_id])
    return record


def refusal(run: Run, name: str, argument: object) -> str:
    """Return why an update is refused."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        run.update(name, argument, dict)
    return str(refused.value.cause)


def wait_for_window(run: Run) -> Status:
    """Wait until the window is open and its first census done."""
    return run.wait_until(
        "the census",
        lambda status: status.phase == Phase.ROLLBACK_WINDOW and "misrouted_ledgers" in status.facts,
        LIMIT,
    )


def test_one_corrupt_replica_is_read_from_the_other(place: Place) -> None:
    """A ledger with a corrupt replica is copied from the good one; the command stops and starts brokers; DONE."""
    place.fill("first")
    with place.ledgers("a") as a, place.ledgers("b") as b:
        damaged = write_damaged(a, ["bookie-1"])

        run = place.operator.start(place.input("a", "b", BrokerControl.COMMAND))
        status = wait_for_window(run)

        assert status.failed_items == []
        assert b.read(damaged) == damaged.bodies
        assert place.read("first") == list(map(text, range(MESSAGES)))
        delete_one_ledger(run)
        report = run.result(LIMIT)
        assert report.outcome is Outcome.DONE, report.failed_items
        assert report.figures["deleted_from_source"] == 1
        assert b.read(damaged) == damaged.bodies
    assert place.webhook.asked == []


def delete_one_ledger(run: Run) -> None:
    """End the window by the update, after orders that it refuses and one that only lists."""
    assert "is not the cluster that this switch leaves" in refusal(run, "clean_up", CleanupOrder(src_cluster="b"))
    assert "routing `restart`" in refusal(run, "set_read_mode", ReadModeChange(mode=ReadMode.DUAL_READ))
    assert "routing `restart`" in refusal(run, "close_client", ClientClosing(cluster="a"))
    listed = run.update("clean_up", CleanupOrder(src_cluster="a", dry_run=True), CleanupTargets)
    assert listed.ledgers > 1
    assert run.status().phase == Phase.ROLLBACK_WINDOW
    ordered = run.update("clean_up", CleanupOrder(src_cluster="a", max_deletions=1), CleanupTargets)
    assert ordered.ledgers == listed.ledgers


def test_rollback_at_the_decision(place: Place) -> None:
    """An entry without a good replica, and a ledger whose id is taken, close a gate; a rollback leaves brokers alone.

    The copy is slow enough that its pace can be changed while it runs.
    """
    place.fill("taken", "whole")
    broker = place.stack["broker-1"].pid
    with place.ledgers("a") as a, place.ledgers("b") as b:
        lost, taken = write_damaged(b, ["second-bookie-1", "second-bookie-2"]), full_ledgers(b, "taken")[0]
        other = put_another(a, taken)
        before = ledger_of(a, taken.ledger_id)
        place.lost, place.taken = lost.ledger_id, taken.ledger_id

        run = place.operator.start(place.input("b", "a", BrokerControl.WEBHOOK, throttle=SLOW))
        change_the_pace(run)
        status = run.wait_until_it_waits_for(WaitKind.DECISION)

        assert status.phase == Phase.BUILD
        assert_named(place, failed_lines(status.failed_items))
        assert status.waiting is not None
        assert "2 ledger(s) cannot be copied" in status.waiting.why
        assert set(status.waiting.ends_on) == {"proceed", "rollback"}
        run.signal(Verb.ROLLBACK)
        report = run.result(LIMIT)

        assert report.outcome is Outcome.ROLLED_BACK, report.summary
        assert ledger_of(a, lost.ledger_id) is None
        assert ledger_of(a, taken.ledger_id) == before
        assert a.read(other) == other.bodies
        # Bookies would refuse these ids at the next start if they were deleted.
        assert all(ledger_of(a, full_ledger.ledger_id) for full_ledger in full_ledgers(b, "whole"))
    assert place.stack["broker-1"].pid == broker
    assert place.webhook.asked == []


def put_another(cluster: Cluster, ledger: Written) -> Written:
    """Write a ledger under the id of another cluster's, which differs from that in the bytes of its entries alone."""
    bookies = tuple(cluster.directory.bookies())
    empty = replace(ledger.metadata, state=LedgerState.OPEN, last_entry=-1, length=0, segments=(Segment(0, bookies),))
    assert cluster.directory.create([(ledger.ledger_id, empty)]) == [True]
    datas = [bytes(len(body) - OVERHEAD) for body in ledger.bodies]
    return cluster.close(Written(ledger.ledger_id, empty, []), datas)


def change_the_pace(run: Run) -> None:
    """Set throttle and concurrency while ledgers are copied."""
    run.wait_for_progress(Phase.BUILD)
    assert run.update("set_concurrency", Concurrency(batches=2), Concurrency) == Concurrency(batches=2)
    run.set_throttle(2 * SLOW)
    status = run.status()
    assert status.phase == Phase.BUILD
    assert [note.partition("Z ")[2].partition(", set by ")[0] for note in status.notes[-2:]] == [
        "concurrency is now 2 batches",
        "throttle is now 0.002 MB/s",
    ]
    run.steer(Verb.PAUSE, "OPS-7")
    # The copy asks every two seconds; without a limit it could end before that.
    status = run.wait_until_it_waits_for(WaitKind.PAUSE)
    run.set_throttle(None)
    assert status.phase == Phase.BUILD
    assert status.pause is not None
    assert status.pause.reason == "OPS-7"
    run.steer(Verb.RESUME)


def assert_named(place: Place, items: list[str]) -> None:
    """Assert that both ledgers are named with the reason."""
    reasons = dict(item.split(": ", 1) for item in items if item.startswith("ledger "))
    assert set(reasons) == {f"ledger {place.lost}", f"ledger {place.taken}"}
    assert "no replica has a valid copy" in reasons[f"ledger {place.lost}"]
    assert "another ledger has this id in a" in reasons[f"ledger {place.taken}"]


def test_proceed_at_the_decision(place: Place) -> None:
    """Proceeding without two ledgers ends with failures: they are named and not copied, all others are copied."""
    with place.ledgers("a") as a, place.ledgers("b") as b:
        other = ledger_of(a, place.taken)
        run = place.operator.start(place.input("b", "a", BrokerControl.WEBHOOK))
        run.wait_until_it_waits_for(WaitKind.DECISION, LIMIT)
        run.signal(Verb.PROCEED)
        status = wait_for_window(run)

        assert_named(place, failed_lines(status.failed_items))
        stop, start = place.webhook.asked
        assert (stop["action"], stop["bookkeeperMetadataServiceUri"]) == ("stop", place.stack.second_bookkeeper_uri)
        assert (start["action"], start["bookkeeperMetadataServiceUri"]) == ("start", place.stack.bookkeeper_uri)
        assert {(order["cluster"], order["direction"]) for order in (stop, start)} == {("damage", "forward")}
        assert stop["runId"] == start["runId"]
        assert stop["epoch"] < start["epoch"], "a late order must be recognizable"
        assert ledger_of(a, place.lost) is None
        assert ledger_of(a, place.taken) == other
        assert [a.read(full_ledger) for full_ledger in full_ledgers(b, "whole")] == [
            full_ledger.bodies for full_ledger in full_ledgers(b, "whole")
        ]
        for topic in ("first", "whole"):
            assert place.read(topic) == list(map(text, range(MESSAGES)))
        run.signal(Verb.PROCEED)
        report = run.result(LIMIT)

        assert report.outcome is Outcome.DONE_WITH_FAILURES, report.summary
        assert_named(place, failed_lines(report.failed_items))
        assert any("the ledgers of b were left as they are" in note for note in report.notes)
        assert ledger_of(b, place.lost) is not None
