"""The Oxia client on real servers with one shard and with four."""

from __future__ import annotations

import faulthandler
import multiprocessing
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from clients.errors import StoreConflict, StoreError, StoreUnreachable, StoreUnsupported
from clients.oxia import OxiaClient, OxiaReader, OxiaWriter, probe_target, speaks_v1
from clients.oxia import oxia_pb2 as pb
from clients.oxia import writer as oxia_writer
from clients.oxia.connection import OxiaConnection
from clients.oxia.version_floor import mark_versions, raise_version_floor
from clients.store import ABSENT, COORDINATOR, Partition, Record
from models.store_url import StoreUrl, parse_store_url
from process.exit_codes import leave
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.spec import StackSpec
from tests.support.clients.proxy import Proxy
from tests.support.waiting import timeout_for, wait_for

if TYPE_CHECKING:
    from tests.support.stacks import MakeStack

pytest_plugins = ["tests.support.stacks"]


@pytest.fixture(scope="module", params=[1, 4], ids=["one-shard", "four-shards"])
def url(request: pytest.FixtureRequest, make_stack: MakeStack) -> StoreUrl:
    """A server with this many shards."""
    return parse_store_url(make_stack(StackSpec(oxias=1, oxia_shards=request.param)).oxia_url)


@pytest.fixture(scope="module")
def victim(make_stack: MakeStack) -> Server:
    """A server of one shard that tests may hurt."""
    return make_stack(StackSpec(oxias=1))["oxia-1"]


@pytest.fixture
def writer(url: StoreUrl) -> Iterator[OxiaWriter]:
    """Small batches, so that a test of a few thousand records fills the window many times."""
    with OxiaWriter(url, batch_bytes=4096, window=4) as opened:
        yield opened


@pytest.fixture
def reader(url: StoreUrl) -> Iterator[OxiaReader]:
    """A reader with a long timeout for a busy machine."""
    with OxiaReader(url) as opened:
        yield opened


def record(path: str, value: bytes = b"", version: int = 0, count: int = 0) -> Record:
    """Return a persistent record as Oxia gives it."""
    return Record(path.encode(), value, version, count, 0, 0, 0)


def everything(reader: OxiaReader, wanted: int = 1) -> list[Record]:
    """Return all records of a store, part after part."""
    batches = [batch for partition in reader.partitions(wanted) for batch in reader.scan(partition)]
    return [record for batch in batches for record in batch if isinstance(record, Record)]


def below(reader: OxiaReader, prefix: bytes) -> dict[bytes, Record]:
    """Return all records whose path has the prefix."""
    return {record.path: record for record in everything(reader) if record.path.startswith(prefix)}


@contextmanager
def session(url: StoreUrl, key: bytes) -> Generator[tuple[OxiaConnection, int, int]]:
    """Open a session on the shard of a key: connection, shard, session id."""
    with OxiaConnection(url) as connection:
        shard = connection.shard_of(key)
        create = pb.CreateSessionRequest(shard=shard, session_timeout_ms=30_000, client_identity="test")
        number = connection.unary(shard, "CreateSession", create, pb.CreateSessionResponse).session_id
        yield connection, shard, number
        close = pb.CloseSessionRequest(shard=shard, session_id=number)
        connection.unary(shard, "CloseSession", close, pb.CloseSessionResponse)


def test_records_come_back_as_they_were_written(writer: OxiaWriter, reader: OxiaReader) -> None:
    """Path, value, version and count of thousands of records are kept, however the store is cut into parts."""
    levels = ["", "/sub", "/sub/ü-%2F", "/sub/ü-%2F/x"]
    wanted = {
        expected.path: expected
        for number in range(1500)
        for level in levels
        for expected in [record(f"/trip/t{number:04d}{level}", b"v" * (number % 700), number * 31 - 9, number % 5)]
    }
    for item in wanted.values():
        writer.put(item, over=None)
    assert writer.flush() == len(wanted)
    assert writer.flush() == 0
    assert below(reader, b"/trip/") == wanted
    assert reader.read([*wanted, b"/trip/none"]) == [*wanted.values(), None]


def test_parts_are_disjoint_whole_and_balanced(writer: OxiaWriter, reader: OxiaReader) -> None:
    """The parts of a store hold each record once and are of like size; a store takes no more parts than it has keys."""
    for number in range(4000):
        writer.put(record(f"/parts/{'x/' * (number % 3)}{number:05d}"), over=None)
    writer.flush()
    whole = sorted(item.path for item in everything(reader))
    for wanted in (1, 2, 7, 16, 100):
        parts = reader.partitions(wanted)
        sizes = [sum(len(batch) for batch in reader.scan(partition)) for partition in parts]
        assert sorted(item.path for item in everything(reader, wanted)) == whole
        assert abs(len(parts) - wanted) <= len({partition.shard for partition in parts})
        assert max(sizes) <= 2 * min(sizes)


def test_a_version_that_has_changed_is_not_replaced(url: StoreUrl, reader: OxiaReader) -> None:
    """A put over a version, and a delete of one, do nothing to a record that another client has changed since."""
    with OxiaWriter(url) as current:
        current.put(record("/over", b"copied", 5, 5), over=None)
        current.flush()
        current.put(record("/over", b"repaired", 6, 6), over=5)
        assert current.flush() == 1
    with OxiaWriter(url) as late:
        late.put(record("/over", b"late", 5, 5), over=5)
        with pytest.raises(StoreConflict, match="/over"):
            late.flush()
    with OxiaWriter(url) as late:
        late.delete(b"/over", expected=5)
        with pytest.raises(StoreConflict, match="/over"):
            late.flush()
    assert reader.read([b"/over"]) == [record("/over", b"repaired", 6, 6)]


def test_only_absent_records_are_written_on_demand(writer: OxiaWriter, reader: OxiaReader) -> None:
    """With `over=ABSENT` overrides apply to a new record; an existing one stays and is not counted."""
    writer.put(record("/fence", b"new", 42, 7), over=ABSENT)
    assert writer.flush() == 1
    writer.put(record("/fence", b"late", 43, 8), over=ABSENT)
    assert writer.flush() == 0
    assert reader.read([b"/fence"]) == [record("/fence", b"new", 42, 7)]
    writer.put(record("/fence", b"forced", 3, 1), over=None)
    assert writer.flush() == 1
    assert reader.read([b"/fence"]) == [record("/fence", b"forced", 3, 1)]


def test_writes_of_one_key_take_effect_in_their_order(writer: OxiaWriter, reader: OxiaReader) -> None:
    """A delete between two puts of the same key acts between them, within a batch and across batches."""
    for filler in (b"", b"x" * 5000):
        for number in range(20):
            path = f"/order/{number}"
            writer.put(record(path, b"first" + filler, 1, 1), over=None)
            writer.delete(path.encode())
            writer.put(record(path, b"second", 2, 2), over=ABSENT)
            writer.delete(b"/order/absent")
        assert writer.flush() == 60
        assert set(below(reader, b"/order/").values()) == {record(f"/order/{n}", b"second", 2, 2) for n in range(20)}
        for number in range(20):
            writer.put(record(f"/order/{number}"), over=None)
            writer.delete(b"/order/%d" % number)
        assert writer.flush() == 40
        assert below(reader, b"/order/") == {}


@pytest.mark.parametrize("version", [0, 2**31 - 1, 2**31 + 5, -(2**31), -2, 2**63 - 1, -(2**63)])
def test_any_version_is_kept(writer: OxiaWriter, reader: OxiaReader, version: int) -> None:
    """Versions beyond 32 bits and negative ones are kept, as version and as count."""
    wanted = record(f"/versions/{version}", b"v", version, version)
    writer.put(wanted, over=ABSENT)
    assert writer.flush() == 1
    assert reader.read([wanted.path]) == [wanted]


def test_children_are_listed_without_their_own(writer: OxiaWriter, reader: OxiaReader) -> None:
    """Direct children come sorted from all shards, without grandchildren and neighbours; parents need not exist."""
    paths = ["/kin/a", "/kin/a/x", "/kin/a-b", "/kin/a-b/y/z", "/kin/b", "/kin-d/c", "/kin0"]
    for path in paths:
        writer.put(record(path), over=None)
    writer.flush()
    assert reader.children(b"/kin") == [b"/kin/a", b"/kin/a-b", b"/kin/b"]
    assert reader.children(b"/kin/b") == []
    assert reader.children(b"/kin/a-b/y") == [b"/kin/a-b/y/z"]
    assert b"/kin0" in reader.children(b"/")


def test_a_subtree_is_one_range_for_each_depth(writer: OxiaWriter, reader: OxiaReader) -> None:
    """Keys are sorted by depth first, so the n-th generation below a path is a range of its own."""
    paths = ["/deep", "/deep/a", "/deep/a/x", "/deep/a/x/y", "/deep/b/z", "/deep!/a/x", "/deeq/b/c", "/deed/b/c/d"]
    for path in paths:
        writer.put(record(path), over=None)
    writer.flush()
    generations: list[list[bytes]] = []
    for depth in (1, 2, 3, 4):
        start, end = b"/deep" + b"/\0" * (depth - 1) + b"/", b"/deep/" + b"/" * depth
        parts = [
            Partition((), (), shard, start, end) for shard in {partition.shard for partition in reader.partitions(1)}
        ]
        generations.append(sorted(item.path for piece in parts for batch in reader.scan(piece) for item in batch))
    assert generations == [[b"/deep/a"], [b"/deep/a/x", b"/deep/b/z"], [b"/deep/a/x/y"], []]


def test_records_of_sessions_show_an_owner(url: StoreUrl, reader: OxiaReader) -> None:
    """An ephemeral record has an owner, whatever its session's number, and Oxia's own keys are not records."""
    with session(url, b"/ephemeral") as (connection, shard, number):
        put = pb.PutRequest(key=b"/ephemeral", value=b"here", session_id=number)
        connection.unary(shard, "Write", pb.WriteRequest(shard=shard, puts=[put]), pb.WriteResponse)
        (ephemeral,) = reader.read([b"/ephemeral"])
        assert isinstance(ephemeral, Record)
        assert ephemeral.owner == (number or 1)
        assert ephemeral in everything(reader)
        assert not [item for item in everything(reader, 9) if not item.path.startswith(b"/")]
    assert reader.read([b"/ephemeral"]) == [None]


def test_records_with_a_partition_key_are_recognized(url: StoreUrl, reader: OxiaReader) -> None:
    """A record that lies where its key does not hash to is misplaced; with one shard none can be."""
    with OxiaConnection(url) as connection:
        home = connection.shard_of(b"/elsewhere")
        for shard in connection.shards:
            put = pb.PutRequest(key=b"/elsewhere", value=b"%d" % shard.id, partition_key="p")
            connection.unary(shard.id, "Write", pb.WriteRequest(shard=shard.id, puts=[put]), pb.WriteResponse)
        by_shard = {
            partition.shard: item
            for partition in reader.partitions(1)
            for batch in reader.scan(partition)
            for item in batch
            if isinstance(item, Record) and item.path == b"/elsewhere"
        }
        assert set(by_shard) == {shard.id for shard in connection.shards}
        assert {shard for shard, item in by_shard.items() if not reader.misplaced(item, shard)} == {home}
        for shard in connection.shards:
            delete = pb.DeleteRequest(key=b"/elsewhere")
            connection.unary(shard.id, "Write", pb.WriteRequest(shard=shard.id, deletes=[delete]), pb.WriteResponse)


def test_single_records_are_set_by_version(url: StoreUrl) -> None:
    """Creation, change and deletion happen on the expected version alone."""
    with OxiaClient(url) as client:
        assert client.get(b"/marker") is None
        version = client.put(b"/marker", b"one", -1)
        with pytest.raises(StoreConflict, match="/marker"):
            client.put(b"/marker", b"two", -1)
        changed = client.put(b"/marker", b"two", version)
        stored = client.get(b"/marker")
        assert stored == record("/marker", b"two", changed, 1)
        with pytest.raises(StoreConflict):
            client.put(b"/marker", b"three", changed + 1)
        with pytest.raises(StoreConflict):
            client.delete(b"/marker", changed + 1)
        client.put(b"/marker", b"whatever", None)
        client.delete(b"/marker", None)
        client.delete(b"/marker", None)
        with pytest.raises(StoreConflict):
            client.delete(b"/marker", changed)
        assert client.get(b"/marker") is None


def test_a_copied_version_is_reused_unless_the_floor_is_raised(url: StoreUrl, writer: OxiaWriter) -> None:
    """Overrides do not move the shard's counter; above the floor no version of a copied record is given again."""
    with OxiaClient(url) as client:
        before = client.put(b"/floor", b"", None)
        writer.put(record("/floor", b"copied", before + 1), over=None)
        writer.flush()
        assert client.put(b"/floor", b"changed", before + 1) == before + 1
        highest = before + 60_000
        writer.put(record("/floor", b"copied", highest), over=None)
        writer.flush()
        assert raise_version_floor(url, highest) >= 60_000 - 1
        assert client.put(b"/floor", b"changed", highest) == highest + 1
        assert raise_version_floor(url, highest) > 0
        assert client.put(b"/floor", b"", None) > highest + 1


def test_later_writes_have_versions_above_the_mark_of_their_shard(url: StoreUrl, reader: OxiaReader) -> None:
    """On every shard, writes before have lower versions than writes after, which continue right above the mark."""
    keys = [b"/line-%d" % number for number in range(32)]
    with OxiaClient(url) as client:
        # Only some shards count up.
        for _ in range(50):
            client.put(keys[0], b"", None)
        before = {key: client.put(key, b"", None) for key in keys}
        marks = mark_versions(url)
        shards = {key: reader.shard_of(key) for key in keys}
        assert all(version < marks[shards[key]] for key, version in before.items())
        after = {key: client.put(key, b"", None) for key in keys}
        assert all(version > marks[shards[key]] for key, version in after.items())
        # A mark takes one write and its deletion on each shard, however far apart their numbers are.
        assert len(marks) == 1 or max(marks.values()) - min(marks.values()) > 10
        assert all(version <= marks[shards[key]] + len(keys) + 1 for key, version in after.items())


def test_a_suitable_target_passes_the_probe_unchanged(url: StoreUrl, reader: OxiaReader) -> None:
    """A server that keeps versions and sorts by hierarchy is accepted, and the probe leaves no record."""
    assert speaks_v1(url)
    probe_target(url)
    assert below(reader, COORDINATOR) == {}


def test_an_unknown_namespace_is_named(url: StoreUrl) -> None:
    """The error for a namespace that does not exist names it and says what to do."""
    unknown = url.model_copy(update={"root": "nowhere"})
    for call in (lambda: probe_target(unknown), lambda: speaks_v1(unknown)):
        with pytest.raises(StoreUnsupported, match="no namespace 'nowhere'; create it"):
            call()


RACE_RECORDS = 5000
_RACE_LIMIT = 120


def race(address: str, runner: int, start: Barrier) -> None:
    """Write as one of several processes: records of its own, and some that all of them write."""
    faulthandler.dump_traceback_later(_RACE_LIMIT - 10, exit=True)
    with OxiaWriter(parse_store_url(address), batch_bytes=8192) as writer:
        writer.put(record(f"/race/{runner}/ready"), over=None)
        writer.flush()
        start.wait(timeout_for(60))
        for number in range(RACE_RECORDS):
            own = record(f"/race/{runner}/{number}", b"%d" % runner * 100, runner * 1000 + number % 7, number % 5)
            writer.put(own, over=None)
            if number % 10 == 0:
                writer.put(record(f"/race/all/{number}", b"%d" % runner, number, 3), over=ABSENT)
        writer.flush()
    # As our programs do: at the interpreter's end a thread of gRPC may keep a lock, for which the end of a call waits.
    leave(0)


def test_several_processes_write_to_one_shard_at_once(url: StoreUrl, reader: OxiaReader) -> None:
    """Streams of several processes lose, mix up or overwrite nothing."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(4)
    runners = [spawn.Process(target=race, args=(str(url), runner, start)) for runner in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(_RACE_LIMIT)
    assert [runner.exitcode for runner in runners] == [0] * 4
    records = below(reader, b"/race/")
    for number in range(RACE_RECORDS):
        for runner in range(4):
            path = f"/race/{runner}/{number}"
            wanted = record(path, b"%d" % runner * 100, runner * 1000 + number % 7, number % 5)
            assert records[path.encode()] == wanted
    common = [records[b"/race/all/%d" % number] for number in range(0, RACE_RECORDS, 10)]
    assert [(item.version, item.count) for item in common] == [(number, 3) for number in range(0, RACE_RECORDS, 10)]
    assert len(records) == 4 * (RACE_RECORDS + 1) + len(common)


SILENCE = 3.0
"""Seconds after which a server counts as silent; it must not be so while it only waits for a processor."""


def test_a_silent_server_is_unreachable(victim: Server) -> None:
    """A server that freezes ends reads, scans and writes with an error that names it, and the window stays bounded."""
    url = parse_store_url(f"oxia://{victim.address}")
    with OxiaWriter(url) as writer:
        for number in range(64):
            writer.put(record(f"/silent/{number}", b"x" * 1_000_000), over=None)
        assert writer.flush() == 64
    with (
        OxiaReader(url, timeout=SILENCE) as reader,
        OxiaWriter(url, timeout=SILENCE) as late,
        OxiaWriter(url, timeout=SILENCE, window=4) as full,
        OxiaClient(url, timeout=SILENCE) as client,
    ):
        scan = reader.scan(reader.partitions(1)[0])
        next(scan)
        late.put(record("/silent/late"), over=None)
        full.put(record("/silent/late"), over=None)
        assert late.flush() == full.flush() == 1
        assert client.get(b"/silent/0") is not None
        victim.pause()
        try:
            with pytest.raises(StoreUnreachable, match=f"{victim.address} sent nothing for {SILENCE:g} s"):
                list(scan)
            late.put(record("/silent/late"), over=None)
            for _ in range(2):
                with pytest.raises(
                    StoreUnreachable, match=f"{victim.address} acknowledged no write .* for {SILENCE:g} s"
                ):
                    late.flush()
            blocks = (record(f"/silent/{number}", b"y" * 1_000_000) for number in range(10))
            with pytest.raises(StoreUnreachable, match=f"{victim.address} acknowledged no write"):
                _write_all(full, blocks)
            # Four are in flight, one is the batch after them, and one would begin the next batch.
            assert len(list(blocks)) == 10 - 6
            with pytest.raises(StoreUnreachable, match=victim.address):
                client.get(b"/silent/0")
            with pytest.raises(StoreUnreachable, match=f"{victim.address} did not answer within {SILENCE:g} s"):
                client.put(b"/silent/0", b"", None)
        finally:
            victim.resume()
    with OxiaReader(url) as again:
        assert len(below(again, b"/silent/")) == 65


def test_a_slow_consumer_is_no_silent_server(victim: Server) -> None:
    """The clock of a scan runs only while it waits for the server."""
    with OxiaReader(parse_store_url(f"oxia://{victim.address}"), timeout=SILENCE) as reader:
        scan = reader.scan(reader.partitions(1)[0])
        first = next(scan)
        assert not threading.Event().wait(1.5 * SILENCE)
        assert len(first) + sum(map(len, scan)) >= 65


def test_an_answer_of_the_guard_counts_from_the_question_on(url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that froze with the answer in hand asks again before its next batch."""
    now, asked = [0.0], list[float]()

    def freeze() -> None:
        asked.append(now[0])
        now[0] += 30

    monkeypatch.setattr(oxia_writer, "time", SimpleNamespace(monotonic=lambda: now[0] + 2))
    with OxiaWriter(url, batch_bytes=1, guard=freeze) as writer:
        for number in range(5):
            writer.put(record(f"/guarded/{number}"), over=None)
        assert writer.flush() == 5
    assert len(asked) == 5


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "for good"])
def test_late_writes_on_a_guarded_stream_are_not_applied(
    victim: Server, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The server itself ends the stream of a guarded writer, so that what was held up on its way writes nothing."""
    monkeypatch.setattr(oxia_writer, "STREAM_SECONDS", 1.0)
    monkeypatch.setattr(OxiaConnection, "leader", _first_host)
    url = parse_store_url(f"oxia://{victim.address}")
    asked: list[int] = []
    guard = (lambda: asked.append(1)) if guarded else None
    late = f"/late/{guarded}"
    with (
        Proxy(victim.address) as proxy,
        OxiaReader(url) as reader,
        OxiaWriter(url.model_copy(update={"hosts": (proxy.address,)}), batch_bytes=1, guard=guard) as writer,
    ):
        writer.put(record(f"{late}/early"), over=None)
        assert writer.flush() == 1
        proxy.silence()
        writer.put(record(late), over=None)
        # Sends the one before it.
        writer.put(record(f"{late}/last"), over=None)
        threading.Event().wait(2)
        proxy.heal()
        if not guarded:
            wait_for("the late record", lambda: reader.read([late.encode()]) != [None], 10)
            return
        # What would be applied is applied at once, as the other case shows.
        threading.Event().wait(1)
        assert reader.read([late.encode()]) == [None]
        with pytest.raises(StoreUnreachable):
            writer.flush()


def _first_host(connection: OxiaConnection, shard: int) -> str:
    del shard
    return connection.url.hosts[0]


def test_a_guarded_stream_is_renewed(url: StoreUrl, reader: OxiaReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that writes for longer than a stream lasts, or pauses for longer, loses nothing and reports nothing."""
    monkeypatch.setattr(oxia_writer, "STREAM_SECONDS", 2.0)
    monkeypatch.setattr(oxia_writer, "_RENEWED_AFTER", 0.2)
    asked: list[int] = []
    with OxiaWriter(url, batch_bytes=512, window=4, guard=lambda: asked.append(1)) as writer:
        for pause in (0.0, 0.3, 2.5, 0.3):
            threading.Event().wait(pause)
            for number in range(50):
                writer.put(record(f"/renewed/{pause}/{number}", version=7), over=ABSENT)
            writer.flush()
    assert len(below(reader, b"/renewed/")) == 150
    assert asked


def test_a_crash_ends_writes_and_all_can_be_repeated(victim: Server) -> None:
    """When the server dies during writes, the writer says so, and a new one brings everything to the end."""
    url = parse_store_url(f"oxia://{victim.address}")
    wanted = [record(f"/crash/{number}", b"x" * 500, number, 1) for number in range(20_000)]
    with OxiaWriter(url) as writer:
        for item in wanted[:10_000]:
            writer.put(item, over=ABSENT)
        victim.kill()
        with pytest.raises(StoreError, match=victim.address):
            _write_all(writer, wanted[10_000:])
    victim.start()
    with OxiaWriter(url) as writer, OxiaReader(url) as reader:
        _write_all(writer, wanted)
        assert below(reader, b"/crash/") == {item.path: item for item in wanted}


def _write_all(writer: OxiaWriter, records: Iterable[Record]) -> None:
    for record in records:
        writer.put(record, over=ABSENT)
    writer.flush()
