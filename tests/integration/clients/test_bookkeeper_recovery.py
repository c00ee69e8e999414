"""Ledgers whose writer is gone, or still there, closed by this project's own client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.recovery import recover_ledgers
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreConflict, StoreUnreachable
from clients.stores import Access
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from tests.support.clients.bookies import (
    Cluster,
    Written,
    failures_of,
    pack,
    recover_ledger,
    resume_frozen,
    start_killed,
)
from tests.support.clients.java_ledgers import JavaLedgers, Ledger, Refused, payloads_digest

ONE, TWO, THREE = "bookie-1", "bookie-2", "bookie-3"
READ_TIMEOUT = 2.0
"""Seconds that a test waits for a bookie that is frozen."""
LONG_TIMEOUT = 30.0
"""Seconds that a bookie may take which only waits for a processor."""
DATAS = [b"entry %d" % number for number in range(200)]


@pytest.fixture
def stack(three_bookies: Stack) -> Stack:
    """Three bookies."""
    return three_bookies


def connected(stack: Stack, read_timeout: float = LONG_TIMEOUT) -> tuple[LedgerDirectoryWriter, Bookies]:
    """Return a client of its own."""
    directory = LedgerDirectoryWriter(parse_store_url(f"{stack.zk_url}/ledgers"), Access())
    return directory, Bookies(directory.bookies, read_timeout=read_timeout)


@pytest.fixture
def cluster(stack: Stack) -> Iterator[Cluster]:
    """The stack's ledgers and bookies, with connections of the test's own."""
    directory, bookies = connected(stack)
    with directory, bookies:
        yield Cluster(directory, bookies)


def recovered(cluster: Cluster, ledger: Written) -> LedgerRecord:
    """Return the ledger after its recovery."""
    return recover_ledger(cluster.directory, cluster.bookies, ledger.ledger_id)


@pytest.mark.parametrize(
    "made", [Ledger(3, 2, 2), Ledger(3, 3, 2), Ledger(2, 2, 1), Ledger(1, 1, 1, "HMAC", b"secret")], ids=str
)
def test_a_java_writer_is_fenced(stack: Stack, cluster: Cluster, java: JavaLedgers, made: Ledger) -> None:
    """A ledger that a Java client holds open is closed at its last entry, and the writer cannot add any more."""
    ledger = replace(made, entries=50, sizes=(100, 0, 7))
    held = java.hold(stack.bookkeeper_uri, ledger)

    record = recover_ledger(cluster.directory, cluster.bookies, held.ledger_id)

    metadata = record.metadata
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 49)
    assert metadata.length == sum(map(len, ledger.payloads()))
    with pytest.raises(Refused) as caught:
        held.add(b"too late")
    assert caught.value.kind == "BKLedgerFencedException"
    (content,) = java.read(stack.bookkeeper_uri, [held.ledger_id], digest=ledger.digest, password=ledger.password)
    assert (content.error, content.entries, content.length) == (None, 50, metadata.length)
    assert content.sha256 == payloads_digest(ledger.payloads())


def test_an_abandoned_pipelined_writer(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """Entries that were written many at a time, and that no entry says are confirmed, are all found."""
    ledger = Ledger(3, 2, 2, entries=1000, sizes=(500,))
    ids = java.create(stack.bookkeeper_uri, ledger, count=3, close=False)
    for ledger_id in ids:
        assert recover_ledger(cluster.directory, cluster.bookies, ledger_id).metadata.last_entry == 999
    assert {content.sha256 for content in java.read(stack.bookkeeper_uri, ids)} == {payloads_digest(ledger.payloads())}


def test_the_java_client_recovers_what_was_written(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """A ledger that this client left open is closed by BookKeeper's own client at the same end."""
    ours, theirs = (cluster.fill(cluster.open([(0, (ONE, TWO, THREE))]), DATAS) for _ in range(2))
    (content,) = java.read(stack.bookkeeper_uri, [theirs.ledger_id], recover=True)
    assert content.error is None
    mine, other = recovered(cluster, ours).metadata, cluster.record(theirs).metadata
    assert mine.same_content(other)
    assert mine.last_entry == len(DATAS) - 1


def test_an_entry_of_one_replica_is_kept(cluster: Cluster) -> None:
    """An entry that reached one bookie only counts, because a reader may have seen it, and is written to both."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO))], (2, 1)), DATAS[:5])
    (body,) = pack(ledger, [b"last"], 5, sum(map(len, DATAS[:5])))
    cluster.put(ledger, 5, body, TWO)
    metadata = recovered(cluster, ledger).metadata
    assert (metadata.last_entry, metadata.length) == (5, sum(map(len, DATAS[:5])) + 4)
    assert cluster.holds(ledger, 5, ONE) == body


def test_nothing_counts_after_a_gap(cluster: Cluster) -> None:
    """An entry after one that no bookie has was never acknowledged to its writer, and does not count."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))]), DATAS[:5])
    body = pack_entry(ledger.ledger_id, 6, b"after", length=100, last_add_confirmed=3)
    for bookie_id in ledger.metadata.replicas(6):
        cluster.put(ledger, 6, body, bookie_id)
    assert recovered(cluster, ledger).metadata.last_entry == 4


def test_another_bookie_at_the_address_of_a_lost_one_says_nothing(
    stack: Stack, cluster: Cluster, java: JavaLedgers
) -> None:
    """A ledger is not closed by what a bookie says that only listens where a lost one did; BookKeeper refuses too."""
    other = cluster.directory.bookies()[THREE]
    lost = f"{other.host}:{other.port}"
    ledger = cluster.open([(0, (ONE, "away:3181", lost))], (3, 2))
    for entry, body in enumerate(pack(ledger, DATAS[:4])):
        cluster.put(ledger, entry, body, ONE)
    with pytest.raises(StoreUnreachable, match=rf"cannot be fenced: .*{lost} is not registered"):
        recovered(cluster, ledger)
    assert not cluster.record(ledger).metadata.closed
    (content,) = java.read(stack.bookkeeper_uri, [ledger.ledger_id], recover=True)
    assert content.error
    assert not cluster.record(ledger).metadata.closed


def test_an_empty_ledger_and_an_empty_segment(cluster: Cluster) -> None:
    """A ledger without entries is closed empty, and one whose last segment is empty at the end of the one before."""
    empty = recovered(cluster, cluster.open([(0, (ONE, TWO))])).metadata
    assert (empty.state, empty.last_entry, empty.length) == (LedgerState.CLOSED, -1, 0)
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO)), (5, (TWO, THREE))]), DATAS[:5])
    assert recovered(cluster, ledger).metadata.last_entry == 4
    assert cluster.read(ledger) == ledger.bodies


def test_a_closed_ledger_is_left_alone(cluster: Cluster) -> None:
    """Recovery changes no closed ledger, finishes an interrupted recovery, and reports a missing ledger."""
    closed = cluster.close(cluster.open([(0, (ONE, TWO))]), DATAS)
    assert recovered(cluster, closed) == cluster.record(closed)
    begun = cluster.fill(cluster.open([(0, (ONE, TWO))]), DATAS)
    cluster.directory.update([(begun.ledger_id, replace(begun.metadata, state=LedgerState.IN_RECOVERY), 0)])
    assert recovered(cluster, begun).metadata.last_entry == len(DATAS) - 1
    with pytest.raises(StoreConflict, match="does not exist"):
        recover_ledger(cluster.directory, cluster.bookies, 999_999)


def test_several_recoveries_at_once(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """Four recoveries that begin together and BookKeeper's own agree on the end."""
    ledgers = [cluster.fill(cluster.open([(0, (ONE, TWO, THREE))]), DATAS) for _ in range(5)]
    together = Barrier(5)

    def recover_all(number: int) -> list[tuple[LedgerState, int, int]]:
        directory, bookies = connected(stack)
        with directory, bookies:
            together.wait()
            records = [
                recover_ledger(directory, bookies, ledger.ledger_id) for ledger in ledgers[number:] + ledgers[:number]
            ]
        return sorted((record.metadata.state, record.metadata.last_entry, record.metadata.length) for record in records)

    def recover_by_java() -> list[str | None]:
        together.wait()
        return [
            content.error
            for content in java.read(stack.bookkeeper_uri, [led.ledger_id for led in ledgers], recover=True)
        ]

    with ThreadPoolExecutor(5) as pool:
        by_java = pool.submit(recover_by_java)
        results = list(pool.map(recover_all, range(4)))
    assert results == [[(LedgerState.CLOSED, len(DATAS) - 1, sum(map(len, DATAS)))] * 5] * 4
    assert by_java.result() == [None] * 5
    for ledger in ledgers:
        assert cluster.read(ledger) == ledger.bodies


@pytest.fixture
def without_two(stack: Stack) -> Iterator[None]:
    """Bookie 2 dies when the test says so, and comes back afterwards."""
    yield
    if not stack["bookie-2"].alive:
        start_killed(stack, TWO)


@pytest.mark.usefixtures("without_two")
def test_a_dead_bookie_is_replaced(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """Entries that are written again go to a spare bookie in place of the dead one, those before stay."""
    segments = [(0, (ONE, THREE)), (100, (ONE, TWO))]
    ledger = cluster.fill(cluster.open(segments), DATAS)
    short = cluster.fill(cluster.open([(0, (ONE, TWO))]), DATAS[:1])
    stack[TWO].kill()

    metadata = recovered(cluster, ledger).metadata

    assert (metadata.last_entry, metadata.length) == (len(DATAS) - 1, sum(map(len, DATAS)))
    # The last entry says that the one before it is confirmed; it is the only one that is written again.
    assert metadata.segments[:2] == ledger.metadata.segments
    assert metadata.segments[2:] == (Segment(199, (ONE, THREE)),)
    assert cluster.holds(ledger, 199, THREE) == ledger.bodies[199]
    assert recovered(cluster, short).metadata.segments == (Segment(0, (ONE, THREE)),)
    (content,) = java.read(stack.bookkeeper_uri, [ledger.ledger_id])
    assert (content.error, content.sha256) == (None, payloads_digest(DATAS))


@pytest.mark.usefixtures("without_two")
def test_a_dead_bookie_without_a_spare(stack: Stack, cluster: Cluster) -> None:
    """Without a spare bookie the ack quorum decides: reached, the ledger is closed; else one can try again."""
    enough = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))], (3, 2)), DATAS)
    striped = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))]), DATAS)
    unfenced = cluster.fill(cluster.open([(0, (ONE, TWO))], (2, 1)), DATAS)
    stack[TWO].kill()

    metadata = recovered(cluster, enough).metadata
    assert (metadata.last_entry, metadata.segments) == (len(DATAS) - 1, enough.metadata.segments)
    with pytest.raises(StoreUnreachable, match="cannot be written to its ack quorum of 2"):
        recovered(cluster, striped)
    with pytest.raises(StoreUnreachable, match=r"cannot be fenced: bookie-2 .*start these bookies"):
        recovered(cluster, unfenced)

    start_killed(stack, TWO)
    directory, bookies = connected(stack)
    with directory, bookies:
        for ledger in (striped, unfenced):
            assert recover_ledger(directory, bookies, ledger.ledger_id).metadata.last_entry == len(DATAS) - 1


def test_an_end_that_cannot_be_determined(cluster: Cluster) -> None:
    """A last entry with bad copies only may have been acknowledged: the ledger is not closed before it."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))], (3, 1)), DATAS)
    bad = ledger.bodies[-1] + b"?"
    for bookie_id in (ONE, TWO, THREE):
        cluster.put(ledger, 199, bad, bookie_id)
    with pytest.raises(LedgerUnreadable, match=r"whether entry 199 .* is unknown"):
        recovered(cluster, ledger)
    assert cluster.record(ledger).metadata.state is LedgerState.IN_RECOVERY


def test_a_frozen_bookie(stack: Stack, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen bookie of the last ensemble costs one read timeout, and is replaced like a dead one."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO))]), DATAS)
    directory, bookies = connected(stack, READ_TIMEOUT)
    with directory, bookies:
        failures = failures_of(bookies, monkeypatch)
        stack[TWO].pause()
        try:
            metadata = recover_ledger(directory, bookies, ledger.ledger_id).metadata
        finally:
            resume_frozen(stack[TWO])
        assert failures == [TWO]
    assert metadata.segments == (Segment(0, (ONE, TWO)), Segment(199, (ONE, THREE)))


class CountedDirectory(LedgerDirectoryWriter):
    """Counts how often metadata are changed."""

    updates = 0

    def update(self, items: Sequence[tuple[int, LedgerMetadata, int]]) -> list[int]:
        """Update metadata, and count the call."""
        self.updates += 1
        return super().update(items)


def test_many_are_recovered_together(stack: Stack, cluster: Cluster) -> None:
    """Ledgers are fenced, read, written and closed together; one that cannot be closed holds up no other."""
    ledgers = [cluster.fill(cluster.open([(0, (ONE, TWO, THREE))]), DATAS[: number + 1]) for number in range(20)]
    closed = cluster.close(cluster.open([(0, (ONE, TWO))]), DATAS)
    torn = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))], (3, 1)), DATAS)
    for bookie_id in (ONE, TWO, THREE):
        cluster.put(torn, 199, torn.bodies[-1] + b"?", bookie_id)
    ids = [written.ledger_id for written in (*ledgers, closed, torn)]
    directory = CountedDirectory(parse_store_url(f"{stack.zk_url}/ledgers"), Access())
    with directory, Bookies(directory.bookies) as bookies:
        results = recover_ledgers(directory, bookies, [*ids, 999_999])

    assert directory.updates == 2, "all IN_RECOVERY at once, and all CLOSED at once"
    for ledger in (*ledgers, closed):
        record = results[ledger.ledger_id]
        assert isinstance(record, LedgerRecord)
        assert (record.metadata.state, record.metadata.last_entry) == (LedgerState.CLOSED, len(ledger.bodies) - 1)
        assert cluster.read(ledger) == ledger.bodies
    assert isinstance(results[torn.ledger_id], LedgerUnreadable)
    assert isinstance(results[999_999], StoreConflict)


FULL = {"diskUsageThreshold": "0.02", "diskUsageWarnThreshold": "0.01", "diskUsageLwmThreshold": "0.01"}
EMPTY = dict.fromkeys(FULL, "0.99")


def test_read_only_bookies(stack: Stack, cluster: Cluster) -> None:
    """A bookie that is read-only for want of space takes what recovery writes, and what is new no more."""
    ledger, other = (cluster.fill(cluster.open([(0, (ONE, TWO, THREE))], (3, 3)), DATAS) for _ in range(2))
    try:
        stack.reconfigure(TWO, **FULL, minUsableSizeForHighPriorityWrites="1")
        directory, bookies = connected(stack)
        with directory, bookies:
            assert bookies.writable() == [ONE, THREE]
            record = recover_ledger(directory, bookies, ledger.ledger_id)
            with pytest.raises(BookieNotWritable, match=r"bookie-2 did not take entry .* read-only"):
                Cluster(directory, bookies).fill(other, DATAS)
        assert (record.metadata.last_entry, record.metadata.segments) == (199, ledger.metadata.segments)
    finally:
        stack.reconfigure(TWO, **EMPTY, minUsableSizeForHighPriorityWrites="1")
