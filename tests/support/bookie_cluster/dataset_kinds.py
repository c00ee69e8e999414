"""The kinds of data in a dataset."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from clients.pulsar.names import TopicName
from pulsar_devstack.servers.admin import topic_url
from tests.support.bookie_cluster.dataset_log import KEEPER, Broker, Log, compare, pulsar, read_all
from tests.support.clients.java_messages import Record, SchemaKind
from tests.support.waiting import wait_for, wait_until_equal

_DAY_MS = 86_400_000
_COMPACTIONS = 5


class Plain:
    """Topics of many small ledgers, with positions of every kind: none, all, half, and holes."""

    def __init__(self) -> None:
        self._rolled, self._batched = Log("rolled"), Log("batched", batch=10)
        self._later: list[Log] = []

    def fill(self, broker: Broker) -> None:
        """Write twelve ledgers, and a topic of batches."""
        self._rolled.subscribe(broker, "half", "holes", "all")
        self._rolled.send(broker, 230)
        assert len(broker.admin.ledgers("rolled")) >= 12
        self._rolled.acknowledge_up_to(broker, "half", 115)
        self._rolled.acknowledge(broker, "holes", [*range(0, 150, 3), *range(160, 200)])
        self._rolled.acknowledge_up_to(broker, "all", 229)
        self._batched.subscribe(broker, "holes")
        self._batched.send(broker, 95)
        # Whole batches: of what is acknowledged within one, a broker may know nothing after it has loaded a topic.
        self._batched.acknowledge(broker, "holes", [*range(10), *range(30, 40), *range(70, 80)])

    def add_more(self, broker: Broker) -> None:
        """Write more to both, close and open holes, and create another topic."""
        begin = len(self._rolled.sent)
        self._rolled.send(broker, 50)
        self._rolled.acknowledge_up_to(broker, "half", begin + 10)
        self._rolled.acknowledge(broker, "holes", range(begin, begin + 40, 2))
        begin = len(self._batched.sent)
        self._batched.send(broker, 25)
        self._batched.acknowledge(broker, "holes", range(begin, begin + 10))
        fresh = Log(f"later-{len(self._later)}")
        fresh.subscribe(broker, "half")
        fresh.send(broker, 30)
        fresh.acknowledge_up_to(broker, "half", 14)
        self._later.append(fresh)

    def verify(self, broker: Broker) -> None:
        """Check every message and position."""
        for log in (self._rolled, self._batched, *self._later):
            log.verify(broker)


class Partitioned:
    """A topic of three partitions, each with a position of its own."""

    _NAME = "partitioned"

    def __init__(self) -> None:
        self._parts = [Log(f"{self._NAME}-partition-{number}") for number in range(3)]

    def fill(self, broker: Broker) -> None:
        """Write different numbers of messages to each partition."""
        broker.admin.topics.create_partitioned(TopicName.parse(self._NAME), len(self._parts))
        for number, partition in enumerate(self._parts):
            partition.subscribe(broker, "workers")
            partition.send(broker, 40 + 15 * number)
            partition.acknowledge_up_to(broker, "workers", 10 * number)

    def add_more(self, broker: Broker) -> None:
        """Write more to each partition."""
        for partition in self._parts:
            partition.send(broker, 15)
            partition.acknowledge(broker, "workers", [len(partition.sent) - 3])

    def verify(self, broker: Broker) -> None:
        """Check the number of partitions, and each of them."""
        assert broker.admin.topics.partitions(TopicName.parse(self._NAME)) == len(self._parts)
        for partition in self._parts:
            partition.verify(broker)


class Typed:
    """A topic with versions of a schema, and records that only their own version decodes."""

    def __init__(self, kind: SchemaKind) -> None:
        self._kind: SchemaKind = kind
        self._name = f"typed-{kind.lower()}"
        self._definitions: list[str] = []
        self._records: list[Record] = []

    def fill(self, broker: Broker) -> None:
        """Write two versions of the schema."""
        broker.client.subscribe(topic_url(self._name), KEEPER, initial_position=pulsar.InitialPosition.Earliest).close()
        self.add_more(broker)
        self.add_more(broker)

    def add_more(self, broker: Broker) -> None:
        """Write another version with one more field and a default, and records of it."""
        version = len(self._definitions)
        fields: list[dict[str, Any]] = [{"name": "name", "type": "string"}]
        fields += [{"name": f"count{number}", "type": "int", "default": 0} for number in range(version)]
        definition = json.dumps({"type": "record", "name": "Order", "namespace": "dataset", "fields": fields})
        counts = {f"count{number}": 1000 * version + number for number in range(version)}
        records: list[dict[str, str | int]] = [{"name": f"order {version}.{n}", **counts} for n in range(25)]
        broker.java.send_records(broker.service, self._name, self._kind, definition, records)
        self._definitions.append(definition)
        texts = [{key: str(value) for key, value in record.items()} for record in records]
        self._records += [Record(version, fields) for fields in texts]

    def verify(self, broker: Broker) -> None:
        """Check every version of the schema, and decode every record by its own."""
        versions = broker.admin.schemas.versions(TopicName.parse(self._name))
        stored = [(version.type, json.loads(version.data)) for version in versions]
        assert stored == [(self._kind, json.loads(definition)) for definition in self._definitions], self._name
        assert broker.java.read_records(broker.service, self._name) == self._records, self._name


class Transactional:
    """A topic with messages and acknowledgements of transactions that were committed, and that were aborted."""

    _SUBSCRIPTION = "in-transactions"

    def __init__(self) -> None:
        self._log = Log("transactional")

    def fill(self, broker: Broker) -> None:
        """Write messages outside of transactions, then two rounds of transactions."""
        self._log.subscribe(broker, self._SUBSCRIPTION)
        self._log.send(broker, 20)
        self.add_more(broker)
        self.add_more(broker)

    def add_more(self, broker: Broker) -> None:
        """Write an aborted transaction, a committed one, and a message after them."""
        taken = self._log.acknowledged[self._SUBSCRIPTION]
        due = [place for place in range(len(self._log.sent)) if place not in taken][:6]
        for commit, places in ((False, due[:3]), (True, due[1::2])):
            payloads = self._log.next_payloads(8)
            broker.java.transact(
                broker.service,
                self._log.name,
                payloads if commit else [b"aborted " + payload for payload in payloads],
                subscription=self._SUBSCRIPTION,
                acknowledge=[self._log.sent[place] for place in places],
                commit=commit,
            )
            if commit:
                self._log.sent += payloads
                taken |= set(places)
        self._log.send(broker, 1)

    def verify(self, broker: Broker) -> None:
        """Check that committed messages are there, and aborted ones are not."""
        self._log.verify(broker)


class Compacted:
    """A topic with values of keys, compacted in between: its readers get the last value of each key from before."""

    _KEYS = 7

    def __init__(self) -> None:
        self._log = Log("compacted")
        self._keys: list[str] = []
        self._horizon = 0

    def fill(self, broker: Broker) -> None:
        """Write many values and a deleted key, compact, and write more values."""
        self._log.subscribe(broker)
        self._put(broker, 60)
        self._log.send_all(broker, [("key-0", b"")])
        self._keys.append("key-0")
        self._compact(broker)
        self._put(broker, 10)

    def add_more(self, broker: Broker) -> None:
        """Compact the present values, and write more values."""
        self._compact(broker)
        self._put(broker, 30)

    def verify(self, broker: Broker) -> None:
        """Check all values for plain readers, and the compacted ones for readers of compacted topics."""
        self._log.verify(broker)
        rows = list(zip(self._keys, self._log.sent, strict=True))
        last = {key: place for place, (key, _) in enumerate(rows[: self._horizon])}
        compacted = [
            payload for place, (key, payload) in enumerate(rows) if place >= self._horizon or last[key] == place
        ]
        # Brokers 4.0 deliver the empty message that deletes a key, until the next compaction; newer ones do not.
        payloads = [payload for payload in read_all(broker, self._log.name, compacted=True) if payload]
        compare("the compacted view", payloads, [payload for payload in compacted if payload])

    def _put(self, broker: Broker, count: int) -> None:
        keys = [f"key-{(len(self._keys) + n) % self._KEYS}" for n in range(count)]
        self._log.send_all(broker, list(zip(keys, self._log.next_payloads(count), strict=True)))
        self._keys += keys

    def _compact(self, broker: Broker) -> None:
        topic = TopicName.parse(self._log.name)

        def ledger() -> int:
            compacted = broker.admin.topics.internal_stats(topic).compacted_ledger
            return compacted.ledger_id if compacted else -1

        before = ledger()
        for _ in range(_COMPACTIONS):
            broker.admin.topics.compact(topic)
            wait_until_equal("the compaction", lambda: broker.admin.topics.compaction(topic).status, "SUCCESS", 60)
            # The broker calls it a success before it reads from the new ledger, and on a busy machine loses the
            # compactor's acknowledgement now and then: no client would ever read from that ledger.
            with suppress(AssertionError):
                wait_for("the compacted ledger", lambda: ledger() != before, 10)
                break
        assert ledger() != before, f"no compacted ledger after {_COMPACTIONS} compactions"
        self._horizon = len(self._log.sent)


class Delayed:
    """Delayed messages, some due soon and some in a day, with their index on bookies.

    Args:
        delay: seconds until those that are due soon are due.
    """

    _NAME, _SUBSCRIPTION = "delayed", "later"

    def __init__(self, delay: float) -> None:
        self._delay = timedelta(seconds=delay)
        self._due: dict[bytes, int] = {}
        self._late = 0

    def fill(self, broker: Broker) -> None:
        """Write several ledgers of delayed messages, until the broker has stored its index."""
        self.add_more(broker)

    def add_more(self, broker: Broker) -> None:
        """Write messages that are due soon, and as many that are not."""
        consumer = self._consumer(broker)
        producer = broker.client.create_producer(topic_url(self._NAME), batching_enabled=False)
        now = int(time.time() * 1000)
        for number in range(len(self._due), len(self._due) + 30):
            soon, payload = now + int(self._delay.total_seconds() * 1000), b"%s/%d" % (self._NAME.encode(), number)
            producer.send(payload, deliver_at=soon)
            producer.send(b"late " + payload, deliver_at=now + _DAY_MS + number)
            self._due[payload] = soon
            self._late += 1
        producer.close()
        # The broker indexes what it reads for a consumer; those that are due by now have left the index.
        wait_for(
            "the index", lambda: broker.admin.subscription(self._NAME, self._SUBSCRIPTION).msg_delayed >= self._late, 60
        )
        consumer.close()

    def verify(self, broker: Broker) -> None:
        """Check that due messages arrive, none early, and that the others wait."""
        consumer = self._consumer(broker)
        received: set[bytes] = set()
        while received != set(self._due):
            try:
                message = consumer.receive(timeout_millis=int(self._delay.total_seconds() * 1000) + 60_000)
            except pulsar.Timeout:
                missing = sorted(set(self._due) - received)[:5]
                raise AssertionError(
                    f"{self._NAME}: {len(received)} of {len(self._due)} came; missing {missing}"
                ) from None
            payload = message.data()
            assert payload in self._due, f"{self._NAME}: {payload!r} is not due"
            early = self._due[payload] - int(time.time() * 1000)
            assert early <= 0, f"{self._NAME}: {payload!r} came {early} ms early"
            received.add(payload)
        consumer.close()
        assert broker.admin.subscription(self._NAME, self._SUBSCRIPTION).msg_backlog == len(self._due) + self._late

    def _consumer(self, broker: Broker) -> Any:
        return broker.client.subscribe(
            topic_url(self._NAME),
            self._SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
