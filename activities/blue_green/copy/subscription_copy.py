"""Copy the backlogs of idle subscriptions to green, before its first message.

`seed_topics` copies during traffic, and `copy_tail` copies the rest while writes are held back. `place_cursors`
(`activities/blue_green/copy/copied_cursors.py`) places the cursors; `compare_entries` and `compare_cursors` compare
both clusters.

What is kept: each stored entry byte for byte, and so payload, properties, keys, ordering keys, event and publish times,
producer names, sequence ids, schema versions, batches, chunks, compression, encryption and delivery times; the order of
each topic and partition; and for each copied subscription exactly the entries that it has not acknowledged.

What is not: message ids are new. A batch of which a part is acknowledged is delivered whole again. Messages of
transactions and brokers' own marks are not copied; a topic with such is refused. Who consumes a copied subscription on
blue after its cursor was placed gets those messages again on green.

Only one attempt writes a copy: it is the exclusive producer of the topic on green, which fences the one before it, and
it finds on green itself how far that came. A topic on green that holds anything else is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from activities.blue_green.topics import others_of
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreContention, StoreUnsupported, VersionConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import InternalStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EntryPosition
from clients.stores import open_cas
from models.blue_green.copies import CopyFigures
from spark.blue_green import jobs
from spark.blue_green.copy_record import CopyRecord, copy_record, recorded_copies
from spark.blue_green.positions import LedgerLength, count_after
from spark.blue_green.spec import CopyEnds, CopyPart, TopicCopy
from spark.blue_green.tasks import Recorded, ledger_lengths, read_record
from spark.engine import SparkEngine

Idle = Mapping[TopicName, Collection[str]]
"""Subscriptions whose backlog is copied, by topic; of a partitioned topic, by partition."""

Progress = Callable[[int, int], None]
"""Called with the entries that are done, and with all that are known."""

_TAIL_ROUNDS = 5


@contextmanager
def _expected(topic: TopicName) -> Generator[None]:
    try:
        yield
    except VersionConflict as cause:
        raise StoreContention(f"{topic}: another attempt changes the record of its copy") from cause


def forget_copies(store: CasStore, namespace: str, fence: Callable[[], object]) -> int:
    """Delete the records of a namespace's copies, which are not needed once it has moved; return their number."""
    topics = recorded_copies(store, namespace)
    for topic in topics:
        forget_copy(store, topic, fence)
    return len(topics)


def forget_copy(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> None:
    """Delete the record of one copy.

    Raises:
        StoreContention: another attempt changed it after it was read.
    """
    if (node := store.get(copy_record(str(topic)))) is not None:
        fence()
        with _expected(topic):
            store.delete(copy_record(str(topic)), node.version)


@dataclass(frozen=True)
class SubscriptionCopy:
    """Clusters, clients and callbacks that the steps of a copy work with.

    Attributes:
        engine: the Spark session.
        tag: of its jobs.
        ends: both clusters, as executors reach them.
        blue: blue's admin interface.
        green: green's.
        fence: called before each change; raises when this attempt must not write any more.
        check: called often; raises when the activity was cancelled.
        progress: hears how far the work is.
    """

    engine: SparkEngine
    tag: str
    ends: CopyEnds
    blue: PulsarAdminReader
    green: PulsarAdminReader
    fence: Callable[[], None]
    check: Callable[[], None]
    progress: Progress

    def record(self, topic: TopicName) -> Recorded | None:
        """Return how far the copy of a topic is; None if it has none."""
        with open_cas(self.ends.store, self.ends.access) as store:
            return read_record(store, topic)

    def note(self, topic: TopicName, recorded: Recorded, **fields: object) -> None:
        """Write into the record of a topic, as it was read.

        Raises:
            StoreContention: another attempt changed it after it was read.
        """
        with open_cas(self.ends.store, self.ends.access) as store, _expected(topic):
            # The record was read before, and is set at the version that it had then.
            self.fence()
            store.set(copy_record(str(topic)), recorded.record.model_copy(update=fields).encode(), recorded.version)


def seed_topics(copy: SubscriptionCopy, idle: Idle) -> CopyFigures:
    """Copy what subscriptions have left, during traffic, up to the end of the topic when each part starts.

    Args:
        copy: both clusters.
        idle: subscriptions without consumers. Topics where they have nothing left get no copy.

    Raises:
        StoreConflict: a topic on green holds other messages, or has other producers; or its schemas differ.
        StoreUnsupported: a topic holds entries that cannot be copied.
        StoreError: a store or a broker failed; the step can be repeated, and continues.
    """
    return _copy(copy, idle)


def copy_tail(copy: SubscriptionCopy, idle: Idle) -> CopyFigures:
    """Copy later messages until none is left; writes to blue must be quiet.

    Arguments and errors are those of `seed_topics`.

    Raises:
        StoreContention: something is sent to blue all the time.
    """
    total = CopyFigures()
    for _ in range(_TAIL_ROUNDS):
        copied = _copy(copy, idle)
        total = CopyFigures(
            topics=copied.topics,
            entries=total.entries + copied.entries,
            messages=total.messages + copied.messages,
            size=total.size + copied.size,
            already_copied=total.already_copied + copied.already_copied,
        )
        # A round that copied nothing started after all that was copied.
        if not copied.entries:
            return total
    raise StoreContention("topics whose backlog is copied still get messages; keep writes quiet, and try again")


def has_uncopied_entries(copy: SubscriptionCopy, idle: Idle) -> bool:
    """Return whether any of these topics holds entries that its copy lacks."""
    tally = _Tally(copy, idle)
    return any(tally.remaining(topic) for topic in idle)


def read_managed_ledger(admin: PulsarAdminReader, topic: TopicName) -> tuple[InternalStats, tuple[LedgerLength, ...]]:
    """Return how a topic's managed ledger is, and its ledgers with the entries that are confirmed."""
    stats = admin.topics.internal_stats(topic)
    return stats, ledger_lengths(stats)


def read_through_broker(stats: InternalStats) -> bool:
    """Return whether some of a topic's ledgers are no longer on bookies."""
    return any(ledger.offloaded for ledger in stats.ledgers)


def _copy(copy: SubscriptionCopy, idle: Idle) -> CopyFigures:
    tally = _Tally(copy, idle)
    jobs.copy(
        copy.engine,
        # Concurrent tasks share the throttle.
        replace(copy.ends, parallelism=max(1, min(len(idle), jobs.width(copy.engine, copy.ends, copy.tag)))),
        list(idle),
        tally.next_copy,
        tag=copy.tag,
        on_part=tally.take,
        check=copy.check,
    )
    return tally.figures()


class _PendingCopy(NamedTuple):
    """A topic that has a copy, or must get one.

    Attributes:
        ledgers: its ledgers, with the entries that are confirmed.
        start: position after which the copy starts.
        remaining: entries that are not copied yet.
        through_broker: see `read_through_broker`.
    """

    ledgers: tuple[LedgerLength, ...]
    start: EntryPosition
    remaining: int
    through_broker: bool


class _Tally:
    """Progress and sums of one step."""

    def __init__(self, copy: SubscriptionCopy, idle: Idle) -> None:
        self._copy = copy
        self._idle = idle
        self._lock = threading.Lock()
        self._ready: set[TopicName] = set()
        self._copies: set[TopicName] = set()
        self._remaining: dict[TopicName, int] = {}
        self._results: list[CopyPart] = []

    def next_copy(self, topic: TopicName) -> TopicCopy | None:
        """Return the next copy of a topic; None if nothing is to be copied."""
        self._copy.fence()
        if (pending := self._pending_copy(topic)) is None:
            return None
        with self._lock:
            self._copies.add(topic)
            self._remaining[topic] = pending.remaining
        if not pending.remaining:
            return None
        if topic not in self._ready:
            self._prepare(topic)
            self._ready.add(topic)
        return TopicCopy(topic, pending.ledgers, pending.start, through_broker=pending.through_broker)

    def remaining(self, topic: TopicName) -> int:
        """Return the number of entries of a topic that are to be copied."""
        pending = self._pending_copy(topic)
        return pending.remaining if pending else 0

    def take(self, topic: TopicName, result: CopyPart) -> None:
        """Add the result of a task."""
        with self._lock:
            self._results.append(result)
            self._remaining[topic] = result.remaining
            done = sum(each.entries for each in self._results)
            total = done + sum(self._remaining.values())
        self._copy.progress(done, total)

    def figures(self) -> CopyFigures:
        """Return the sums."""
        results = self._results
        return CopyFigures(
            topics=len(self._copies),
            entries=sum(result.entries for result in results),
            messages=sum(result.messages for result in results),
            size=sum(result.size for result in results),
            already_copied=sum(result.already_copied for result in results),
        )

    def _pending_copy(self, topic: TopicName) -> _PendingCopy | None:
        copy = self._copy
        try:
            stats, ledgers = read_managed_ledger(copy.blue, topic)
        except AdminNotFound:
            # It was deleted since.
            return None
        mark_deletes = [
            EntryPosition.parse(stats.cursors[name].mark_delete_position)
            for name in self._idle[topic]
            if name in stats.cursors
        ]
        first = min(mark_deletes, default=None)
        if first is not None and not count_after(ledgers, first):
            first = None
        recorded = self._valid_record(topic, first)
        if recorded:
            start = EntryPosition(*recorded.record.start)
        elif first is not None:
            start = first
        else:
            return None
        if first is not None and first < start and count_after(ledgers, first) > count_after(ledgers, start):
            raise StoreConflict(
                f"{topic}: a subscription has messages left from before the start of the copy, {start}; let it wait, "
                "or delete the topic on the new cluster and copy it again"
            )
        last = recorded.record.positions.last if recorded else None
        remaining = count_after(ledgers, last[0] if last else start)
        return _PendingCopy(ledgers, start, remaining, read_through_broker(stats))

    def _valid_record(self, topic: TopicName, start: EntryPosition | None) -> Recorded | None:
        """Return the record of a copy that is still on green; start it again if the topic there is empty.

        Nothing was copied yet then, or the topic was created again; the next copy may start earlier.

        Args:
            topic: the topic.
            start: position after which another copy would start; None if nothing is to be copied.

        Raises:
            StoreConflict: the topic on green holds something else.
        """
        copy = self._copy
        if (recorded := copy.record(topic)) is None:
            return None
        try:
            _, ledgers = read_managed_ledger(copy.green, topic)
        except AdminNotFound:
            ledgers = ()
        last = recorded.record.positions.last
        if any(
            last is None or (ledger.ledger_id == last[1].ledger_id and ledger.entries > last[1].entry_id)
            for ledger in ledgers
        ):
            return recorded
        if ledgers:
            raise StoreConflict(
                f"{topic} on the new cluster has other messages instead of its copy; delete the topic there, and "
                "provision it again"
            )
        if start is None:
            with open_cas(copy.ends.store, copy.ends.access) as store:
                forget_copy(store, topic, copy.fence)
            return None
        # Not deleted: a record that is created again would have the versions that a frozen attempt has read.
        copy.note(topic, recorded, **CopyRecord(start=start).model_dump())
        return copy.record(topic)

    def _prepare(self, topic: TopicName) -> None:
        """Check that green is ready to take a copy.

        Raises:
            StoreConflict: it is not.
        """
        green = self._copy.green
        try:
            stats = green.topics.stats(topic)
        except AdminNotFound as cause:
            raise StoreConflict(f"{topic} is not on the new cluster; provision it there first") from cause
        if others := others_of(stats.publishers):
            raise StoreConflict(
                f"{topic} has {len(others)} producers on the new cluster before the flip, the first from "
                f"{others[0].address}; stop them"
            )
        if stats.replication:
            raise StoreConflict(
                f"{topic} is replicated from the new cluster to {', '.join(sorted(stats.replication))}: its copy would "
                "arrive there as well, after what blue has sent. Let its subscriptions wait, or stop its replication"
            )
        self._compare_schemas(topic)

    def _compare_schemas(self, topic: TopicName) -> None:
        """Check that each schema version is the same on green: messages name it by number."""
        whole = topic.whole
        of_blue, of_green = self._copy.blue.schemas.versions(whole), self._copy.green.schemas.versions(whole)
        green_schemas = {schema.version: schema for schema in of_green}
        for schema in of_blue:
            other = green_schemas.get(schema.version)
            if other is None or (schema.type, schema.data) != (other.type, other.data):
                raise StoreUnsupported(
                    f"{whole}: version {schema.version} of its schema is "
                    f"{'missing' if other is None else 'another'} on the new cluster, and messages name it; provision "
                    "the schemas again, in their order"
                )
