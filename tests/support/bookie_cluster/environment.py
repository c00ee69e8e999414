"""A real switch by restart, step by step: two bookie clusters, one broker, and the activities."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from activities.bookie_cluster import build as copying
from activities.bookie_cluster import cleanup as cleaning
from activities.bookie_cluster import tail
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import progress_path
from activities.bookie_cluster.precheck import SwitchPrecheckRun
from activities.bookie_cluster.progress import read_verified
from activities.pulsar.registrations import brokers
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.pool import Bookies
from clients.stores import Access
from models.bookie_cluster.input import BookieClusterInput, Direction
from models.bookie_cluster.results import CopySummary, LedgersDeleted, SwitchPrecheck, TailCopy
from models.bookie_cluster.updates import CleanupOrder
from models.ledger_store import parse_ledger_store_uri
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.bookie_cluster.activities import Steps
from tests.support.clients.bookies import Cluster, Written
from tests.support.waiting import wait_for

# The libraries have no types.
pulsar: Any = importlib.import_module("pulsar")
schema: Any = importlib.import_module("pulsar.schema")

TOPICS = ("one", "two")
MESSAGES = 50
FORWARD, BACK = Direction.FORWARD, Direction.BACK
DELETE_ALL = CleanupOrder(src_cluster="a")


def codes(precheck: SwitchPrecheck) -> list[str]:
    """Return the codes of the blockers."""
    return [blocker.code for blocker in precheck.blockers]


@dataclass
class SwitchEnvironment:
    """Two bookie clusters, a broker, and how many messages each topic has got.

    Attributes:
        clash: id of a ledger that both clusters have with different entries; 0 before that.
        sent: messages of each topic.
    """

    stack: Stack
    steps: Steps
    clash: int = 0
    sent: int = 0

    def input(self, **more: object) -> BookieClusterInput:
        """Return the switch from the first bookies, `a`, to the second ones, `b`."""
        return BookieClusterInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": self.stack.state.spec.cluster,
                "metadata_url": self.stack.zk_url,
                "source": {"name": "a", "metadataServiceUri": self.stack.bookkeeper_uri},
                "target": {"name": "b", "metadataServiceUri": self.stack.second_bookkeeper_uri},
                "routing": "restart",
                # These tests add ledgers of their own, to which no topic refers.
                "ledgers": "all",
                "exclusive": True,
                **more,
            }
        )

    def task(self, direction: Direction = FORWARD) -> BookieClusterTask:
        """Return a step's view of the switch."""
        return self.steps.task(self.input(), direction)

    def precheck(self, **more: object) -> SwitchPrecheck:
        """Run PRECHECK of the plan with other fields."""
        return self.steps.run(lambda task: SwitchPrecheckRun(task).run(), self.input(**more))

    def build(self) -> CopySummary:
        """Run BUILD forward."""
        return self.steps.run(copying.build, self.input(), FORWARD)

    def copy_tail(self, direction: Direction = FORWARD, **more: object) -> TailCopy:
        """Copy the tail, without a broker."""
        return self.steps.run(tail.copy_tail, self.input(**more), direction)

    def delete(self, order: CleanupOrder = DELETE_ALL, *, epoch: int | None = None, attempt: int = 1) -> LedgersDeleted:
        """Run one step of a cleanup, or another attempt of it."""
        task = self.steps.task(self.input(), epoch=epoch, attempt=attempt)
        return cleaning.delete_ledgers(task, order)

    def source(self) -> dict[int, LedgerRecord]:
        """List all ledgers of `a`."""
        return ledgers(self.stack.bookkeeper_uri)

    def target(self) -> dict[int, LedgerRecord]:
        """List all ledgers of `b`."""
        return ledgers(self.stack.second_bookkeeper_uri)

    def verified(self) -> dict[int, int]:
        """Return the progress of the forward direction."""
        with self.task().broker_store() as store:
            return dict(read_verified(store, progress_path(self.task(), FORWARD)))

    def send(self) -> None:
        """Write to all topics, with a schema, and acknowledge half of that."""
        client = quiet_client(self.stack.broker_url)
        for name in TOPICS:
            form = schema.JsonSchema(_Thing)
            consumer = client.subscribe(topic_url(name), "half", schema=form)
            producer = client.create_producer(topic_url(name), schema=form, batching_enabled=False)
            for number in range(MESSAGES):
                producer.send(_Thing(number=self.sent + number))
            for _ in range(MESSAGES // 2):
                consumer.acknowledge(consumer.receive(30_000))
        self.sent += MESSAGES
        client.close()

    def read(self) -> dict[str, list[int]]:
        """Return all messages of all topics, in the order in which a new reader receives them."""
        client = quiet_client(self.stack.broker_url)
        messages: dict[str, list[int]] = {}
        for name in TOPICS:
            reader = client.create_reader(topic_url(name), pulsar.MessageId.earliest, schema=schema.JsonSchema(_Thing))
            numbers = messages[name] = []
            while reader.has_message_available():
                numbers.append(reader.read_next(30_000).value().number)
        client.close()
        return messages

    def assert_all(self) -> None:
        """Check that a reader receives all messages of all topics, each once and in order."""
        assert self.read() == {name: list(range(self.sent)) for name in TOPICS}

    def registered(self) -> list[str]:
        """Return the registered brokers."""
        with self.task().broker_store() as store:
            return [broker.name for broker in brokers(store)]

    def move_broker(self, uri: str) -> None:
        """Start the broker, which is down, on a bookie cluster."""
        self.stack.use_bookies(uri)
        self.stack["broker-1"].start()

    def stop_broker(self) -> None:
        """Stop the broker in good order."""
        self.stack["broker-1"].stop()
        wait_for("no broker to be registered", lambda: not self.registered(), 30)


class _Thing(schema.Record):
    number = schema.Integer()


def ledgers(uri: str) -> dict[int, LedgerRecord]:
    """List all ledgers of a cluster."""
    with LedgerDirectory(parse_ledger_store_uri(uri).url, Access()) as directory:
        return {record.ledger_id: record for batch in directory.scan() for record in batch}


def write_ledger(uri: str, data: list[bytes], ledger_id: int | None = None) -> int:
    """Write a closed ledger that is not Pulsar's; returns its id."""
    root = parse_ledger_store_uri(uri).url
    with LedgerDirectoryWriter(root, Access()) as directory, Bookies(directory.bookies) as bookies:
        cluster = Cluster(directory, bookies)
        ledger = cluster.open([(0, bookies.writable())], (1, 1))
        if ledger_id is not None:
            directory.delete([(ledger.ledger_id, None)])
            directory.create([(ledger_id, ledger.metadata)])
            ledger = Written(ledger_id, ledger.metadata, [])
        return cluster.close(ledger, data).ledger_id


def delete_ledger(uri: str, ledger_id: int) -> None:
    """Delete a ledger, as Pulsar does with one that it needs no more."""
    with LedgerDirectoryWriter(parse_ledger_store_uri(uri).url, Access()) as directory:
        assert directory.delete([(ledger_id, None)]) == 1
