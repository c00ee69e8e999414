"""Ledgers' metadata in bulk, and the generator of ledger ids, on real ZooKeeper, bookies and a broker."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from clients.bookkeeper.idgen import IdGenerator, raise_generator, read_generator
from clients.bookkeeper.layout import ledger_path
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from clients.errors import StoreConflict, StoreProtocolError, StoreUnsupported, Superseded
from clients.stores import Access, revoke_permits
from clients.zookeeper import Coordination, CoordinationReader
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.clients.java_ledgers import JavaLedgers, Ledger
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_for

ACCESS = Access()
MANY = 10_000
OPEN = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    state=LedgerState.OPEN,
    length=0,
    last_entry=-1,
    segments=(Segment(0, ("bookie-1", "bookie-2")),),
    digest=DigestType.CRC32C,
    custom=(("application", b"pulsar"), ("component", b"managed-ledger")),
    token=0,
)


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A BookKeeper cluster on Pulsar's metadata driver with a broker, and one on BookKeeper's own driver."""
    return make_stack(StackSpec(zookeepers=1, bookies=2, brokers=1, second_bookies=1))


@pytest.fixture(scope="module")
def url(stack: Stack) -> StoreUrl:
    """Ledgers root of the broker's cluster."""
    return parse_store_url(stack.zk_url + "/ledgers")


@pytest.fixture(scope="module")
def second_url(stack: Stack) -> StoreUrl:
    """Ledgers root of the other cluster."""
    return parse_store_url(stack.zk_url + "/second-ledgers")


@pytest.fixture(scope="module")
def java(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[JavaLedgers]:
    """BookKeeper's own client."""
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as client:
        yield client


@pytest.fixture
def directory(url: StoreUrl) -> Generator[LedgerDirectoryWriter]:
    """The ledgers of the broker's cluster."""
    with LedgerDirectoryWriter(url, ACCESS) as writer:
        yield writer


def scan(directory: LedgerDirectory) -> dict[int, LedgerRecord]:
    """Return all ledgers, each seen once."""
    records = list(chain.from_iterable(directory.scan()))
    by_id = {record.ledger_id: record for record in records}
    assert len(by_id) == len(records)
    return by_id


@contextmanager
def timed(what: str) -> Generator[None]:
    """Print how long something takes."""
    begun = time.perf_counter()
    yield
    sys.stdout.write(f"{what}: {time.perf_counter() - begun:.2f} s\n")


def test_bookies_of_both_drivers(stack: Stack, url: StoreUrl, second_url: StoreUrl) -> None:
    """Bookies are found with their addresses, whichever driver registered them, and so is the content of the root."""
    with LedgerDirectory(url, ACCESS) as first, LedgerDirectory(second_url, ACCESS) as second:
        addresses = {name: stack[name].address for name in ("bookie-1", "bookie-2")}
        assert {name: f"{info.host}:{info.port}" for name, info in first.bookies().items()} == addresses
        assert all(bookie.writable for bookie in first.bookies().values())
        assert first.cookies() == set(addresses)
        [other] = second.bookies().values()
        assert f"{other.host}:{other.port}" == stack["second-bookie-1"].address
        assert other.writable
        assert second.cookies() == {other.bookie_id}
        assert second.layout() == "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
        assert first.instance_id() != second.instance_id()
        assert len(first.instance_id() or "") == 36


def test_java_and_we_see_the_same(stack: Stack, second_url: StoreUrl, java: JavaLedgers) -> None:
    """BookKeeper's client and ours read each other's ledgers with all their metadata."""
    uri = stack.second_bookkeeper_uri
    ids = java.create(uri, Ledger(entries=3, sizes=(7,), custom={"a": b"\x00\xff"}), count=3)
    wide = java.create(uri, Ledger(entries=0, digest="CRC32", password=b"secret"), ids=[5 << 32])
    with LedgerDirectoryWriter(second_url, ACCESS) as directory:
        records = scan(directory)
        assert {*ids, *wide} <= records.keys()
        for number in ids:
            metadata = records[number].metadata
            assert (metadata.closed, metadata.last_entry, metadata.length) == (True, 2, 21)
            assert (metadata.custom_map, metadata.digest) == ({"a": b"\x00\xff"}, DigestType.CRC32C)
        assert records[5 << 32].metadata.password == b"secret"
        ours = replace(records[ids[0]].metadata, state=LedgerState.CLOSED, last_entry=-1, length=0, password=b"")
        assert directory.create([(ids[0], ours), (6 << 32, ours)]) == [False, True]
        [read] = java.read(uri, [6 << 32])
        assert (read.error, read.state, read.entries, read.custom) == (None, "CLOSED", 0, {"a": b"\x00\xff"})
        assert java.delete(uri, [6 << 32]) == 1
        assert directory.read([6 << 32, ids[0]]) == [None, records[ids[0]]]


@pytest.mark.exhaustive
def test_ten_thousand_ledgers(directory: LedgerDirectoryWriter) -> None:
    """Ledgers are created, scanned, closed and deleted in bulk, each once, and repeating it changes nothing."""
    ids = [number * 11 if number % 2 else (7 << 32) + number * 3 for number in range(1000, 1000 + MANY)]
    before = scan(directory)
    with timed(f"create {MANY}"):
        assert all(directory.create([(number, OPEN) for number in ids]))
    with timed(f"create {MANY} again"):
        assert not any(directory.create([(number, OPEN) for number in ids]))
    with timed(f"scan {MANY}"):
        records = scan(directory)
    assert records.keys() - before.keys() == set(ids)
    assert {(record.metadata, record.version) for number, record in records.items() if number in set(ids)} == {
        (OPEN, 0)
    }
    with timed(f"read {MANY}"):
        assert directory.read(ids) == [records[number] for number in ids]
    closed = replace(OPEN, state=LedgerState.CLOSED, last_entry=9, length=100)
    with timed(f"close {MANY}"):
        assert directory.update([(number, closed, 0) for number in ids]) == [1] * MANY
    after = [record for record in directory.read(ids) if record]
    assert {(record.metadata, record.version) for record in after} == {(closed, 1)}
    assert all(record.mzxid > records[record.ledger_id].mzxid for record in after)
    with timed(f"delete {MANY}"):
        assert directory.delete([(number, 1) for number in ids]) == MANY
    assert directory.delete([(number, None) for number in ids]) == 0
    assert scan(directory).keys() == before.keys()


def test_create_continues_after_a_part_was_done(directory: LedgerDirectoryWriter) -> None:
    """A creation that stopped half-way is repeated: existing ledgers are left as they are, and reported."""
    ids = list(range(700_000, 700_900))
    existing = set(ids[::7])
    assert all(directory.create([(number, OPEN) for number in existing]))
    other = replace(OPEN, custom=())
    assert directory.create([(number, other) for number in ids]) == [number not in existing for number in ids]
    assert [record and record.metadata == OPEN for record in directory.read(ids)] == [
        number in existing for number in ids
    ]
    assert directory.delete([(number, None) for number in ids]) == len(ids)


@pytest.mark.exhaustive
def test_two_create_the_same(url: StoreUrl) -> None:
    """If two clients create the same ledgers at once, each ledger is reported as created to exactly one of them."""
    ids = [(9 << 32) + number * 9_000 for number in range(3_000)]
    items = [(number, OPEN) for number in ids]
    start = threading.Barrier(2)

    def create(order: int) -> list[bool]:
        with LedgerDirectoryWriter(url, ACCESS) as writer:
            start.wait(timeout_for(30))
            return writer.create(items[::order])[::order]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(create, (1, -1))
    assert [by_first + by_second for by_first, by_second in zip(first, second, strict=True)] == [1] * len(ids)
    with LedgerDirectoryWriter(url, ACCESS) as writer:
        assert writer.delete([(number, None) for number in ids]) == len(ids)


def test_parents_vanish_during_a_creation(directory: LedgerDirectoryWriter, url: StoreUrl) -> None:
    """BookKeeper deletes nodes above the last ledger beneath them; a creation of a ledger creates them again."""
    over = threading.Event()
    deleted: list[str] = []

    def delete() -> None:
        with Coordination(url) as other:
            while not over.is_set():
                for path in ("/20/0000", "/20"):
                    with contextlib.suppress(StoreConflict):
                        other.delete(path, -1)
                        deleted.append(path)

    ids = itertools.count(2_000_000_000)

    def create_again() -> bool:
        for ledger_id in itertools.islice(ids, 10):
            assert directory.create([(ledger_id, OPEN)]) == [True]
            assert directory.delete([(ledger_id, 0)]) == 1
        return len(deleted) >= 20

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        try:
            wait_for("parents that were deleted during a creation", create_again, 60)
        finally:
            over.set()
        deleting.result(timeout_for(30))


def test_an_id_that_was_deleted_is_not_created_again(directory: LedgerDirectoryWriter) -> None:
    """A writer that has deleted a ledger creates none of its id; one that it could not delete is not counted."""
    assert directory.create([(810_000, OPEN), (810_001, OPEN)]) == [True, True]
    with pytest.raises(StoreConflict, match="ledger 810001 has another version"):
        directory.delete([(810_000, 0), (810_001, 5)])
    with pytest.raises(StoreConflict, match="ledger 810000 was deleted by this writer"):
        directory.create([(810_000, OPEN), (810_002, OPEN)])
    assert directory.create([(810_001, OPEN), (810_002, OPEN)]) == [False, True]
    assert directory.delete([(810_001, 0), (810_002, 0)]) == 2


def test_a_deletion_in_flight_is_refused_after_a_takeover(stack: Stack, url: StoreUrl) -> None:
    """A late attempt that has passed its fence deletes nothing once a newer one has revoked its permit."""
    store = parse_store_url(stack.zk_url)
    taken_over = False

    def fence() -> None:
        nonlocal taken_over
        if taken_over:
            raise Superseded("a newer attempt has taken over")
        # From here to the server the attempt may be frozen for any time; here another one takes over.
        taken_over = True
        revoke_permits(store, ACCESS)

    with LedgerDirectoryWriter(url, ACCESS, store) as late, Coordination(store) as parents:
        with contextlib.suppress(StoreConflict):
            parents.create("/pulsar/migration-coordinator", b"")
        assert late.create([(820_000, OPEN)]) == [True]
        with pytest.raises(Superseded):
            late.delete([(820_000, 0)], fence)
        assert [record and record.ledger_id for record in late.read([820_000])] == [820_000]
        taken_over = False
        assert late.delete([(820_000, 0)], lambda: None) == 1
        assert not [name for name in parents.children("/pulsar/migration-coordinator") if "writer" in name]


def test_other_version(directory: LedgerDirectoryWriter) -> None:
    """A ledger that has another version is reported and left alone, and all others are changed."""
    ids = list(range(800_000, 801_200))
    directory.create([(number, OPEN) for number in ids])
    recovered = replace(OPEN, state=LedgerState.IN_RECOVERY)
    assert directory.update([(800_700, recovered, 0)]) == [1]
    closed = replace(OPEN, state=LedgerState.CLOSED)
    with pytest.raises(StoreConflict, match="ledger 800700 has another version, and version 0"):
        directory.update([(number, closed, 0) for number in ids])
    states = [record.metadata.state for record in directory.read(ids) if record]
    assert states == [recovered.state if number == 800_700 else closed.state for number in ids]
    with pytest.raises(StoreConflict, match="ledger 800700 has another version, and version 0"):
        directory.delete([(number, 0 if number == 800_700 else 1) for number in ids])
    assert [record.ledger_id for record in directory.read(ids) if record] == [800_700]
    assert directory.delete([(800_700, 1)]) == 1
    with pytest.raises(StoreConflict, match="ledger 800700 is gone"):
        directory.update([(800_700, closed, 1)])


def test_ledger_that_cannot_be_read_is_named(directory: LedgerDirectoryWriter, url: StoreUrl) -> None:
    """A ledger whose metadata is damaged ends a scan with its id; of the facts it is kept apart with the reason."""
    directory.create([(900_001, OPEN)])
    with Coordination(url) as other:
        other.set(ledger_path(900_001), b"BookieMetadataFormatVersion\t3\n\x05ab", 0)
    with pytest.raises(StoreProtocolError, match="ledger 900001: "):
        scan(directory)
    assert 900_001 not in {facts.ledger_id for facts in directory.facts()}
    assert directory.undecodable.keys() == {900_001}
    assert directory.undecodable[900_001].startswith("ledger 900001: ")
    assert directory.delete([(900_001, None)]) == 1


def test_no_ledgers_root(stack: Stack) -> None:
    """In a root that was not initialised as a BookKeeper cluster nothing is found or created."""
    nowhere = parse_store_url(stack.zk_url + "/nowhere")
    with LedgerDirectoryWriter(nowhere, ACCESS) as directory:
        assert (scan(directory), directory.bookies(), directory.instance_id()) == ({}, {}, None)
        with pytest.raises(StoreUnsupported, match="no ledgers root"):
            directory.create([(1, OPEN)])
    with Coordination(nowhere) as coordination:
        assert read_generator(coordination) == IdGenerator(0, None, 0)
        with pytest.raises(StoreUnsupported, match="no ledgers root"):
            raise_generator(coordination, 7)
        assert not coordination.exists("/")


def test_other_layouts(stack: Stack, java: JavaLedgers) -> None:
    """LongHierarchicalLedgerManager's paths are known; a layout that is not is refused with its name."""
    root = parse_store_url(stack.zk_url + "/long-ledgers")
    factory = "org.apache.bookkeeper.meta.{}LedgerManagerFactory"
    with Coordination(root) as coordination, LedgerDirectoryWriter(root, ACCESS) as directory:
        coordination.create("/LAYOUT", f"2\n{factory.format('LongHierarchical')}:1".encode(), parents=True)
        # BookKeeper's client asks for bookies.
        coordination.create("/available/readonly", parents=True)
        assert directory.create([(5, OPEN)]) == [True]
        assert coordination.exists("/000/0000/0000/0000/L0005")
        assert scan(directory).keys() == {5}
        uri = f"zk+longhierarchical://{root.hosts[0]}/long-ledgers"
        assert java.delete(uri, [5]) == 1
        coordination.set("/LAYOUT", f"2\n{factory.format('Flat')}:1".encode(), -1)
    with LedgerDirectory(root, ACCESS) as directory, pytest.raises(StoreUnsupported, match="FlatLedgerManagerFactory"):
        scan(directory)


@pytest.mark.parametrize("root", ["/ledgers", "/second-ledgers"], ids=["Pulsar's driver", "BookKeeper's driver"])
def test_generator_is_read_and_raised(stack: Stack, toolchain: Toolchain, tmp_path: Path, root: str) -> None:
    """The next id is known without using the generator; after a raise, new ids are above it, and never 0."""
    uri = stack.bookkeeper_uri if root == "/ledgers" else stack.second_bookkeeper_uri
    with (
        Coordination(parse_store_url(stack.zk_url + root)) as coordination,
        JavaLedgers(toolchain, tmp_path) as running,
    ):
        foreseen = read_generator(coordination)
        assert running.next_id(uri) == foreseen.next_id == foreseen.short_next
        assert foreseen.high is None
        assert running.next_id(uri) == foreseen.next_id + 1
        # Lifted only where it must be.
        assert raise_generator(coordination, foreseen.next_id).high is None
        assert not coordination.exists("/idgen-long")

        assert raise_generator(coordination, 1_000_000)[:2] == (1 << 32, 1)
        assert raise_generator(coordination, 1_000_000)[:2] == (1 << 32, 1)
        assert coordination.children("/idgen-long") == ["HOB-0000000001"]
        # A running client of BookKeeper's own driver must be restarted; Pulsar's looks each time.
        assert running.next_id(uri) == (1 << 32 if root == "/ledgers" else foreseen.next_id + 2)
        with JavaLedgers(toolchain, tmp_path) as restarted:
            first = read_generator(coordination).next_id
            assert restarted.next_id(uri) == first
            assert first in (1 << 32, (1 << 32) + 1)
            assert read_generator(coordination).next_id == first + 1

        # Within the same upper half nothing is lifted; in a later one the smallest that suffices.
        assert raise_generator(coordination, first).high == 1
        assert raise_generator(coordination, (5 << 32) + 17)[:2] == (6 << 32, 6)
        with JavaLedgers(toolchain, tmp_path) as restarted:
            assert restarted.next_id(uri) == 6 << 32
        # One id too few: the next upper half, though that is far away.
        assert raise_generator(coordination, (6 << 32) + 1)[:2] == (7 << 32, 7)


def test_broker_takes_ids_of_the_lifted_generator(stack: Stack, url: StoreUrl) -> None:
    """A running broker creates its next ledgers above the id given, in the long layout."""
    with StackAdmin(stack.admin_urls[0]) as admin:
        send_to(stack.broker_url, ["before"])
        with Coordination(url) as coordination:
            above = read_generator(coordination).next_id + (1 << 40)
            raised = raise_generator(coordination, above)
        send_to(stack.broker_url, ["after"])
        assert max(admin.ledgers("before")) < above < raised.next_id <= min(admin.ledgers("after"))
        with LedgerDirectory(url, ACCESS) as directory:
            assert None not in directory.read(list(admin.ledgers("after")))


def test_trap_of_a_sequential_node(stack: Stack) -> None:
    """`HOB-0000000000` makes ids begin at 0 again, which is seen; lifting leads out of it."""
    root = parse_store_url(stack.zk_url + "/trap-ledgers")
    with Coordination(root) as coordination:
        coordination.create("/idgen-long", parents=True)
        # The generator itself begins with 1 where there is no child.
        assert read_generator(coordination).next_id == 1 << 32
        assert coordination.create("/idgen-long/HOB-", sequence=True) == "/idgen-long/HOB-0000000000"
        assert read_generator(coordination)[:2] == (0, 0)
        assert raise_generator(coordination, 0)[:2] == (1 << 32, 1)


def test_many_raise_at_once(stack: Stack) -> None:
    """Concurrent calls all end above the id given, and waste no upper half of the id space."""
    root = parse_store_url(stack.zk_url + "/raised-ledgers")
    with Coordination(root) as coordination:
        coordination.create("/INSTANCEID", parents=True)
    start = threading.Barrier(4)

    def lift(above: int) -> IdGenerator:
        with Coordination(root) as coordination:
            start.wait(timeout_for(30))
            return raise_generator(coordination, above)

    with ThreadPoolExecutor(4) as pool:
        lifted = list(pool.map(lift, (5, 5, 1 << 32, 1 << 32)))
    assert all(ids.next_id > above for ids, above in zip(lifted, (5, 5, 1 << 32, 1 << 32), strict=True))
    with CoordinationReader(root) as reader:
        assert read_generator(reader).high == 2
