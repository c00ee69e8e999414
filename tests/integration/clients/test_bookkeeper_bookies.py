"""Entries on real bookies: written, read, with replicas that are bad, gone, dead or frozen."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from clients.bookkeeper.cluster import Cluster as AnyCluster
from clients.bookkeeper.copy_result import Verdict
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.metadata import DigestType
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.recovery import recover_batch
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, LedgerUnreadable, StoreDenied, StoreUnreachable
from clients.stores import Access
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from tests.support.clients.bookies import Cluster, failures_of, pack, recover_ledger, resume_frozen, start_killed
from tests.support.clients.java_ledgers import JavaLedgers, Ledger, payloads_digest
from tests.support.waiting import wait_for

ONE, TWO, THREE = "bookie-1", "bookie-2", "bookie-3"
READ_TIMEOUT, ADD_TIMEOUT = 2.0, 5.0
"""Seconds that tests wait for bookies that are frozen."""
LONG_TIMEOUT = 30.0
"""Seconds that a bookie may take which only waits for a processor."""
MIXED = [bytes([number % 251]) * (number * 37 % 3000) for number in range(700)]


@pytest.fixture
def stack(three_bookies: Stack) -> Stack:
    """Three bookies."""
    return three_bookies


@contextmanager
def connected(stack: Stack, read_timeout: float, add_timeout: float) -> Generator[Cluster]:
    """Open the stack's ledgers and bookies, with connections of the test's own."""
    with (
        LedgerDirectoryWriter(parse_store_url(f"{stack.zk_url}/ledgers"), Access()) as directory,
        Bookies(directory.bookies, read_timeout=read_timeout, add_timeout=add_timeout) as bookies,
    ):
        yield Cluster(directory, bookies)


@pytest.fixture
def cluster(stack: Stack) -> Generator[Cluster]:
    """The stack's ledgers and bookies."""
    with connected(stack, LONG_TIMEOUT, LONG_TIMEOUT) as cluster:
        yield cluster


@pytest.fixture
def impatient(stack: Stack) -> Generator[Cluster]:
    """The same, by a client that waits for seconds only."""
    with connected(stack, READ_TIMEOUT, ADD_TIMEOUT) as cluster:
        yield cluster


@pytest.mark.parametrize("digest", DigestType)
@pytest.mark.parametrize("ensemble", [(ONE, TWO, THREE), (ONE, TWO), (THREE,)])
def test_the_java_client_reads_what_was_written(
    stack: Stack, cluster: Cluster, java: JavaLedgers, digest: DigestType, ensemble: tuple[str, ...]
) -> None:
    """Entries of many sizes come back in order, here and in BookKeeper's own client, striped or not."""
    quorum = min(len(ensemble), 2)
    ledger = cluster.close(cluster.open([(0, ensemble)], (quorum, quorum), digest, b"secret"), MIXED)
    assert cluster.read(ledger) == ledger.bodies
    (content,) = java.read(stack.bookkeeper_uri, [ledger.ledger_id], digest=digest.name, password=b"secret")
    assert (content.error, content.entries, content.sha256) == (None, len(MIXED), payloads_digest(MIXED))


def test_entries_of_the_java_client_are_read(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """Every entry that BookKeeper's own client wrote with striping can be read, from any entry and to any entry."""
    ledger = Ledger(ensemble=3, write=2, ack=2, entries=500, sizes=(10, 3000, 1), seed=3)
    (ledger_id,) = java.create(stack.bookkeeper_uri, ledger)
    (record,) = cluster.directory.read([ledger_id])
    assert record
    reader = LedgerReader(cluster.bookies)
    bodies = [body for batch in reader.entries(ledger_id, record.metadata) for body in batch]
    assert [body[36:] for body in bodies] == ledger.payloads()
    section = [body for batch in reader.entries(ledger_id, record.metadata, 17, 333) for body in batch]
    assert section == bodies[17:334]
    assert reader.read_entry(ledger_id, record.metadata, 499) == bodies[499]


def test_entries_in_several_segments(stack: Stack, cluster: Cluster, java: JavaLedgers) -> None:
    """Each entry lies on the bookies of its own segment, of which one has a single entry."""
    segments = [(0, (ONE, TWO)), (100, (TWO, THREE)), (101, (THREE, ONE))]
    ledger = cluster.close(cluster.open(segments), MIXED)
    assert cluster.read(ledger) == ledger.bodies
    for entry, absent in ((99, THREE), (100, ONE), (101, TWO)):
        assert cluster.holds(ledger, entry, absent) is None
    (content,) = java.read(stack.bookkeeper_uri, [ledger.ledger_id])
    assert (content.error, content.sha256) == (None, payloads_digest(MIXED))


def test_large_and_empty_ledgers(cluster: Cluster) -> None:
    """Entries of megabytes, and a ledger of none."""
    datas = [bytes([number]) * (2_000_000 + number) for number in range(9)]
    large = cluster.close(cluster.open([(0, (ONE, TWO))]), datas)
    assert cluster.read(large) == large.bodies
    empty = cluster.close(cluster.open([(0, (ONE, TWO))]), [])
    assert cluster.read(empty) == []


@pytest.mark.parametrize("ensemble", [(ONE, TWO), (ONE, TWO, THREE)])
def test_bad_copies_are_read_elsewhere(cluster: Cluster, ensemble: tuple[str, ...]) -> None:
    """Entries with a changed byte on one replica, each replica having bad ones, all come out right."""
    ledger = cluster.close(cluster.open([(0, ensemble)]), MIXED)
    for entry in (0, 1, 57, 300, 699):
        body = ledger.bodies[entry]
        cluster.put(ledger, entry, body[:-1] + bytes([body[-1] ^ 1]), ledger.metadata.replicas(entry)[entry % 2])
    assert cluster.read(ledger) == ledger.bodies


def test_missing_copies_are_read_elsewhere(cluster: Cluster) -> None:
    """Each replica has only every second run of entries, as after a bookie lost a disk."""
    ledger = cluster.open([(0, (ONE, TWO))])
    bodies = pack(ledger, MIXED)
    for start in range(0, 700, 50):
        writer = LedgerWriter(cluster.bookies, leave_out={ONE if start % 100 else TWO})
        writer.add(ledger.ledger_id, ledger.metadata, start, bodies[start : start + 50])
        writer.flush()
    batches = LedgerReader(cluster.bookies).entries(ledger.ledger_id, ledger.metadata, 0, 699)
    assert [body for batch in batches for body in batch] == bodies


def test_no_valid_copy(cluster: Cluster) -> None:
    """An entry that is corrupt on one replica and missing on the other ends the reading, with both reasons."""
    ledger = cluster.open([(0, (ONE, TWO))], asked_first=TWO)
    bodies = pack(ledger, MIXED[:10])
    writer = LedgerWriter(cluster.bookies)
    writer.add(ledger.ledger_id, ledger.metadata, 0, bodies[:5])
    writer.flush()
    cluster.put(ledger, 5, bodies[5][:-1] + b"?", TWO)
    text = (
        f"entry 5 of ledger {ledger.ledger_id} cannot be read: bookie-2 has a bad copy: its CRC32C digest differs; "
        "bookie-1 does not have the entry; no replica has a valid copy"
    )
    with pytest.raises(LedgerUnreadable) as caught:
        list(LedgerReader(cluster.bookies).entries(ledger.ledger_id, ledger.metadata, 0, 5))
    assert str(caught.value) == text


def test_many_ledgers_at_once(cluster: Cluster) -> None:
    """Small ledgers come out whole, those that cannot be read with their errors, whatever comes first."""
    ledgers = [
        cluster.close(cluster.open([(0, ensemble)]), [bytes([number])] * number)
        for number in range(30)
        for ensemble in ((ONE, TWO), (THREE, TWO, ONE))
    ]
    bad = replace(ledgers[-1].metadata, last_entry=29)
    wanted = [(ledger.ledger_id, ledger.metadata) for ledger in ledgers[:-1]] + [(ledgers[-1].ledger_id, bad)]
    results = dict(LedgerReader(cluster.bookies).read_many(wanted))
    error = results.pop(ledgers[-1].ledger_id)
    assert isinstance(error, LedgerUnreadable)
    assert f"entry 29 of ledger {ledgers[-1].ledger_id}" in str(error)
    assert results == {ledger.ledger_id: ledger.bodies for ledger in ledgers[:-1]}


@pytest.mark.parametrize("ensemble", [pytest.param((ONE, TWO), marks=pytest.mark.exhaustive), (ONE, TWO, THREE)])
def test_a_killed_bookie(stack: Stack, cluster: Cluster, ensemble: tuple[str, ...]) -> None:
    """A bookie that dies while it is read from costs nothing but its share, and is asked again when it is back."""
    ledger = cluster.close(cluster.open([(0, ensemble)], asked_first=TWO), [b"x" * 20_000] * 1500)
    batches = LedgerReader(cluster.bookies).entries(ledger.ledger_id, ledger.metadata)
    bodies = next(batches)
    stack[TWO].kill()
    try:
        bodies += [body for batch in batches for body in batch]
        assert bodies == ledger.bodies
        assert cluster.bookies.quarantined(TWO)
        with pytest.raises(StoreUnreachable, match="bookie-2"):
            cluster.fill(cluster.open([(0, (ONE, TWO))]), [b"x"])
        assert TWO not in cluster.bookies.writable()
    finally:
        start_killed(stack, TWO)
    with Bookies(cluster.directory.bookies) as bookies:
        assert bookies.writable() == [ONE, TWO, THREE]
        fresh = Cluster(cluster.directory, bookies)
        assert fresh.read(fresh.close(fresh.open([(0, (ONE, TWO))]), [b"back"]))


def test_a_restarted_bookie(stack: Stack, cluster: Cluster) -> None:
    """A bookie that was restarted while nothing was asked of it is connected to again, and not avoided."""
    ledger = cluster.fill(cluster.open([(0, (ONE,))], (1, 1)), [b"x"])
    stack[ONE].restart()
    assert cluster.fill(ledger, [b"x", b"y"])
    assert not cluster.bookies.quarantined(ONE)


def test_a_replica_that_is_down_may_have_the_entry(stack: Stack, cluster: Cluster) -> None:
    """An entry whose other copy is bad is not unreadable while a bookie that may have it is down."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO))], asked_first=ONE), [b"x"])
    cluster.put(ledger, 0, ledger.bodies[0] + b"?", ONE)
    stack[TWO].kill()
    try:
        with pytest.raises(StoreUnreachable, match=r"bookie-1 has a bad copy.*bookie-2 cannot be reached"):
            LedgerReader(cluster.bookies).read_entry(ledger.ledger_id, ledger.metadata, 0)
    finally:
        start_killed(stack, TWO)


@pytest.mark.parametrize("ensemble", [(ONE, TWO), pytest.param((ONE, TWO, THREE), marks=pytest.mark.exhaustive)])
def test_a_frozen_bookie(
    stack: Stack, impatient: Cluster, ensemble: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie that is frozen costs one read timeout, and nothing at all for some seconds after that."""
    ledger = impatient.close(impatient.open([(0, ensemble)], asked_first=ONE), [b"x" * 20_000] * 1500)
    failures = failures_of(impatient.bookies, monkeypatch)
    stack[ONE].pause()
    try:
        begun = time.monotonic()
        assert impatient.read(ledger) == ledger.bodies
        assert time.monotonic() - begun >= READ_TIMEOUT
        assert failures == [ONE]
        assert impatient.read(ledger) == ledger.bodies
        assert failures == [ONE]
        with pytest.raises(StoreUnreachable, match="bookie-1 did not answer"):
            impatient.fill(impatient.open([(0, (ONE, TWO))]), [b"x"])
    finally:
        resume_frozen(stack[ONE])


def test_a_ledger_is_read_from_one_replica(stack: Stack, cluster: Cluster) -> None:
    """Every entry of a ledger is first requested from the same bookie, so that another frozen bookie costs no time."""
    ledger = cluster.close(cluster.open([(0, (ONE, TWO))], asked_first=ONE), [b"x" * 20_000] * 1500)
    stack[TWO].pause()
    try:
        assert cluster.read(ledger) == ledger.bodies
        assert not cluster.bookies.quarantined(TWO)
    finally:
        resume_frozen(stack[TWO])


def test_writes_to_a_frozen_bookie_end(stack: Stack, impatient: Cluster) -> None:
    """A bookie that freezes under writes is named after the add timeout."""
    ledger = impatient.fill(impatient.open([(0, (ONE, TWO))]), [b"x"])
    stack[TWO].pause()
    try:
        with pytest.raises(StoreUnreachable, match="bookie-2 did not answer within 5 s"):
            impatient.fill(ledger, MIXED * 4)
    finally:
        resume_frozen(stack[TWO])


def test_another_password_is_refused(cluster: Cluster) -> None:
    """A bookie that holds the ledger under another password does not take entries, nor does a ledger other ids."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO))]), [b"x"])
    other = replace(ledger, metadata=replace(ledger.metadata, password=b"other"))
    with pytest.raises(StoreDenied, match="another password"):
        cluster.fill(other, [b"y"])
    with pytest.raises(ValueError, match="cannot be written as entry 3"):
        LedgerWriter(cluster.bookies).add(ledger.ledger_id, ledger.metadata, 3, ledger.bodies)


def test_a_fenced_ledger_takes_what_is_copied(cluster: Cluster) -> None:
    """Entries can be added to a fenced ledger, also repeatedly."""
    ledger = cluster.fill(cluster.open([(0, (ONE, TWO))]), MIXED[:3])
    recover_ledger(cluster.directory, cluster.bookies, ledger.ledger_id)
    again = cluster.fill(ledger, MIXED[:9])
    batches = LedgerReader(cluster.bookies).entries(ledger.ledger_id, ledger.metadata, 0, 8)
    assert [body for batch in batches for body in batch] == again.bodies


def refuses_recovery(cluster: Cluster) -> bool:
    """Return whether bookie 2 does not take what recovery writes either."""
    ledger = cluster.open([(0, (TWO,))], (1, 1))
    writer = LedgerWriter(cluster.bookies, recovering=True)
    try:
        writer.add(ledger.ledger_id, ledger.metadata, 0, pack(ledger, [b"x"]))
        writer.flush()
    except BookieNotWritable:
        return True
    return False


@pytest.mark.exhaustive
def test_a_read_only_bookie(stack: Stack, cluster: Cluster) -> None:
    """A bookie without any space takes no entry; what recovery would write again is refused for now, not unreadable."""
    limits = {"diskUsageThreshold": "0.02", "diskUsageWarnThreshold": "0.01", "diskUsageLwmThreshold": "0.01"}
    # It has no spare bookie, and each replica is needed to close it.
    left_open = cluster.fill(cluster.open([(0, (ONE, TWO, THREE))], (3, 3)), MIXED[:9])
    stack.reconfigure(TWO, **limits, diskCheckInterval="500", minUsableSizeForHighPriorityWrites=str(1 << 60))
    try:
        with Bookies(cluster.directory.bookies) as bookies:
            assert bookies.writable() == [ONE, THREE]
            full = Cluster(cluster.directory, bookies)
            with pytest.raises(BookieNotWritable, match=r"bookie-2 did not take entry 0 .* read-only"):
                full.fill(full.open([(0, (TWO,))], (1, 1)), [b"x"])
            # It takes such entries until it has first looked at its disks.
            wait_for("nothing to be taken at all", lambda: refuses_recovery(full), 30)
            (outcome,) = recover_batch(AnyCluster(full.directory, full.bookies), [left_open.ledger_id])
            assert (outcome.verdict, outcome.transient) == (Verdict.NOT_RECOVERED, True)
            assert "bookie-2 did not take entry 8" in outcome.detail
            assert "read-only" in outcome.detail
    finally:
        stack.reconfigure(
            TWO,
            diskUsageThreshold="0.99",
            diskUsageWarnThreshold="0.99",
            diskUsageLwmThreshold="0.99",
            diskCheckInterval="10000",
            minUsableSizeForHighPriorityWrites="1",
        )


@pytest.mark.exhaustive
def test_a_bookie_with_too_much_to_do(stack: Stack, cluster: Cluster) -> None:
    """Adds that a bookie refuses because too many are waiting are sent again until it has them all."""
    stack.reconfigure(TWO, maxPendingAddRequestsPerThread="5")
    try:
        with Bookies(cluster.directory.bookies) as bookies:
            busy = Cluster(cluster.directory, bookies)
            ledger = busy.close(busy.open([(0, (ONE, TWO))]), MIXED * 6)
            assert all(busy.holds(ledger, entry, TWO) == body for entry, body in enumerate(ledger.bodies))
    finally:
        stack.reconfigure(TWO, maxPendingAddRequestsPerThread="10000")


def test_space_of_a_bookie(cluster: Cluster) -> None:
    """Each bookie says how much free space it has, and one that does not exist is unreachable."""
    for bookie_id in cluster.bookies.writable():
        space = cluster.bookies.free_space(bookie_id)
        assert 0 < space.free < space.total
    with pytest.raises(StoreUnreachable, match="is not registered"):
        cluster.bookies.free_space("bookie-9")
