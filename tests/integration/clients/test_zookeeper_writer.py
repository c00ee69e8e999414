"""ZooKeeper's bulk writer on a real server: values, versions, counters, races."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.errors import RecordNotWritable, StoreConflict, StoreUnreachable
from clients.store import ABSENT, COORDINATOR, Record, Unreadable
from clients.zookeeper import Coordination, Create, Set, ZooKeeperReader, ZooKeeperWriter, keeps_count, writer
from clients.zookeeper.ops import UNFINISHED
from clients.zookeeper.scan import TreeScan
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.server import Server
from tests.support.clients.zookeeper_records import by_path, contents, record, scan, write

pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]


def realistic(number: int) -> list[Record]:
    """Return managed ledgers with cursors, counted ledgers, and policies; about 30 % are set more than once."""
    rng = random.Random(number)
    records = [record("/ledgers/idgen", count=number + 7), record("/ledgers/idgen-long/HOB-0000000001", b"", 2, 40)]
    for topic in range(number):
        path = f"/managed-ledgers/public/ns{topic % 5}/persistent/topic-{topic:05d}"
        records += [
            record(path, rng.randbytes(rng.randrange(1, 900)), rng.choice([0, 0, 1, 3])),
            record(path + "/sub", rng.randbytes(60), rng.choice([0, 0, 0, 12])),
            record(f"/ledgers/00/{topic // 1000:04d}/L{topic:04d}", rng.randbytes(600), rng.choice([0, 0, 1])),
        ]
    records.append(record("/managed-ledgers", b"", 0))
    records.append(record("/managed-ledgers/public", b"p", 4))
    return records


@pytest.mark.parametrize("order", ["parents first", "children first", "shuffled"])
def test_copy_in_any_order(url: StoreUrl, order: str) -> None:
    """In any order of records, the target gets the requested values and versions, and counts that are high enough."""
    records = realistic(2_000)
    records.sort(key=lambda wanted: wanted.path, reverse=order == "children first")
    if order == "shuffled":
        random.Random(1).shuffle(records)
    assert write(url, records) == len(records)
    nodes = by_path(scan(url))
    for wanted in records:
        node = nodes.pop(wanted.path)
        assert (node.value, node.version) == (wanted.value, wanted.version)
        assert not keeps_count(wanted.path, wanted.value) or node.count >= wanted.count
    assert {(wanted.value, wanted.version) for wanted in nodes.values()} == {(b"", 0)}


def test_second_copy_changes_nothing(url: StoreUrl) -> None:
    """A copy repeated finds everything equal: no node is set, created or counted again."""
    records = realistic(300)
    write(url, records)
    before = by_path(scan(url))
    assert write(url, records) == len(records)
    assert by_path(scan(url)) == before


def test_version_is_raised_by_the_difference(url: StoreUrl) -> None:
    """A node with a lower version is set until it has the one wanted, and stays the node that it was."""
    write(url, [record("/a", b"1", 2)])
    (before,) = scan(url)
    write(url, [record("/a", b"2", 5)])
    assert contents(url) == {b"/a": (b"2", 5)}
    with ZooKeeperReader(url) as reader:
        (after,) = reader.read([b"/a"])
    assert isinstance(before, Record)
    assert isinstance(after, Record)
    assert after.children_changed == before.children_changed


@pytest.mark.parametrize("version", [3, 1], ids=["same version", "lower version"])
def test_node_ahead_is_replaced_and_what_is_beneath_kept(url: StoreUrl, version: int) -> None:
    """A node whose version is too high is replaced, without loss of the nodes beneath it."""
    write(url, [record("/a", b"old", 3), record("/a/b", b"b", 2, 0), record("/a/b/c", b"", 1, 9), record("/x", b"x")])
    assert write(url, [record("/a", b"new", version), record("/x", b"y", 0)]) == 2
    assert contents(url) == {b"/a": (b"new", version), b"/a/b": (b"b", 2), b"/a/b/c": (b"", 1), b"/x": (b"y", 0)}
    assert by_path(scan(url))[b"/a/b/c"].count >= 9


@pytest.mark.parametrize("change", ["set", "delete", "set the replaced node"])
def test_a_replaced_node_keeps_what_others_write(
    url: StoreUrl, kazoo: Any, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value or a deletion by another client, between the read of a subtree and its replacement, is kept."""
    write(url, [record("/a", b"old", 3), record("/a/b", b"b"), record("/a/c", b"c")])

    class Scan(TreeScan):
        def batches(self) -> Iterator[list[Record | Unreadable]]:
            yield from super().batches()
            monkeypatch.setattr(writer, "TreeScan", TreeScan)
            if change == "delete":
                kazoo.delete(f"{url.root}/a/b")
            else:
                kazoo.set(f"{url.root}/a/b" if change == "set" else f"{url.root}/a", b"service")

    monkeypatch.setattr(writer, "TreeScan", Scan)
    with ZooKeeperWriter(url) as late:
        late.put(record("/a", b"new", 1), over=3)
        if change == "set the replaced node":
            with pytest.raises(StoreConflict):
                late.flush()
        else:
            late.flush()
    wanted = {
        "set": {b"/a": (b"new", 1), b"/a/b": (b"service", 1), b"/a/c": (b"c", 0)},
        "delete": {b"/a": (b"new", 1), b"/a/c": (b"c", 0)},
        "set the replaced node": {b"/a": (b"service", 4), b"/a/b": (b"b", 0), b"/a/c": (b"c", 0)},
    }
    assert contents(url) == wanted[change]


@pytest.mark.parametrize(("shared", "nodes", "refused"), [(True, 6, True), (True, 4, False), (False, 6, False)])
def test_a_large_replacement_where_services_write(url: StoreUrl, nodes: int, *, shared: bool, refused: bool) -> None:
    """A replacement in two requests is refused where services write: an attempt that dies between both loses nodes."""
    beneath = {f"/a/{number}".encode(): (bytes(200_000), 0) for number in range(nodes)}
    write(url, [record("/a", b"old", 3), *(record(path.decode(), *rest) for path, rest in beneath.items())])
    with ZooKeeperWriter(url, shared=shared) as late:
        late.put(record("/a", b"new", 1), over=3)
        if refused:
            with pytest.raises(RecordNotWritable, match="together with 6 nodes beneath it"):
                late.flush()
        else:
            late.flush()
    assert contents(url) == {b"/a": (b"old", 3) if refused else (b"new", 1), **beneath}


def test_node_above_an_ephemeral_is_not_replaced(url: StoreUrl) -> None:
    """A replacement that would end another session's ephemeral node is refused, and nothing is changed."""
    write(url, [record("/a", b"old", 3)])
    with Coordination(url) as other:
        other.create("/a/lock", b"", ephemeral=True)
        with pytest.raises(RecordNotWritable, match=r"/a/lock .* ephemeral"):
            write(url, [record("/a", b"new", 1)])
        assert contents(url) == {b"/a": (b"old", 3), b"/a/lock": (b"", 0)}
        with pytest.raises(RecordNotWritable, match="/a/lock is an ephemeral"):
            write(url, [record("/a/lock", b"data")])


def test_over_absent_leaves_existing_nodes(url: StoreUrl) -> None:
    """A late attempt neither overwrites a value nor raises a version, and writes what is absent."""
    write(url, [record("/a", b"newer", 1), record("/empty", b"", 0)])
    late = [record("/a", b"older", 7), record("/empty", b"late", 0), record("/b", b"b", 2)]
    assert write(url, late, over=ABSENT) == 1
    assert contents(url) == {b"/a": (b"newer", 1), b"/empty": (b"", 0), b"/b": (b"b", 2)}


def test_over_absent_completes_mere_parents_and_unfinished_nodes(url: StoreUrl) -> None:
    """A node that another attempt created only as a parent, or left unfinished, is written."""
    write(url, [record("/parent/child", b"c"), record("/half", UNFINISHED, 5)])
    late = [record("/parent", b"p", 3), record("/half", b"whole", 9)]
    assert write(url, late, over=ABSENT) == 2
    assert contents(url) == {b"/parent": (b"p", 3), b"/parent/child": (b"c", 0), b"/half": (b"whole", 9)}


def test_long_raises(url: StoreUrl) -> None:
    """A version and a count of 20,000 are reached, and beyond the limit the path and the number are named."""
    write(url, [record("/often", b"v", 20_000), record("/ledgers/idgen", b"", 0, 20_000)], max_raise=20_000)
    nodes = by_path(scan(url))
    assert nodes[b"/often"][1:3] == (b"v", 20_000)
    assert nodes[b"/ledgers/idgen"].count == 20_000
    with pytest.raises(RecordNotWritable, match=r"/often has version 20011, which takes 11 sets"):
        write(url, [record("/often", b"v", 20_011)], max_raise=10)
    with pytest.raises(RecordNotWritable, match=r"/ledgers/idgen had 20011 children, which takes 11 creations"):
        write(url, [record("/ledgers/idgen", b"", 0, 20_011)], max_raise=10)


def test_next_sequential_child_continues(url: StoreUrl) -> None:
    """The first sequential child after the copy gets the number that it would have got in the source."""
    write(url, [record("/ledgers/idgen", b"", 0, 4711)])
    with Coordination(url) as session:
        assert session.create("/ledgers/idgen/ID-", b"", sequence=True) == "/ledgers/idgen/ID-0000004711"


def test_without_versions(url: StoreUrl) -> None:
    """Without versions a node is created or set once, whatever the source's version id is."""
    huge = 1 << 50
    write(url, [record("/a", b"1", huge), record("/a/b", b"2", huge + 1)], keep_versions=False)
    write(url, [record("/a", b"1", huge + 5), record("/a/b", b"3", huge + 6)], keep_versions=False)
    assert contents(url) == {b"/a": (b"1", 0), b"/a/b": (b"3", 1)}


def test_delete(url: StoreUrl) -> None:
    """Nodes go in any order once their children are gone; one that keeps a child stays."""
    write(url, [record(f"/{top}/{number}/leaf", b"v") for top in "abc" for number in range(400)] + [record("/d", b"d")])
    with ZooKeeperWriter(url) as writer:
        writer.delete(b"/a")
        writer.delete(b"/b")
        for number in range(400):
            writer.delete(b"/b/%d" % number)
            writer.delete(b"/b/%d/leaf" % number)
        writer.delete(b"/d")
        writer.delete(b"/none/at/all")
        assert writer.flush() == 802
        assert writer.flush() == 0
    remaining = contents(url)
    assert {path.split(b"/")[1] for path in remaining} == {b"a", b"c"}
    assert len(remaining) == 2 * 801


def test_a_version_that_has_changed_is_not_replaced(url: StoreUrl) -> None:
    """A put over a version, and a delete of one, do nothing to a node that another client has changed since."""
    write(url, [record("/over", b"copied", 5), record("/gone", b"g", 1)])
    assert write(url, [record("/over", b"repaired", 6)], over=5) == 1
    with pytest.raises(StoreConflict, match="/over has version 6, and version 5 was expected"):
        write(url, [record("/over", b"late", 7)], over=5)
    with pytest.raises(StoreConflict, match="/absent is gone"):
        write(url, [record("/absent", b"late", 7)], over=5)
    with ZooKeeperWriter(url) as writer:
        writer.delete(b"/over", expected=5)
        with pytest.raises(StoreConflict, match="/over has version 6"):
            writer.flush()
    with ZooKeeperWriter(url) as writer:
        writer.delete(b"/gone", expected=1)
        writer.delete(b"/never", expected=1)
        assert writer.flush() == 1
    assert contents(url) == {b"/over": (b"repaired", 6)}


def test_two_attempts_at_once(url: StoreUrl) -> None:
    """Two writers that copy the same records at the same time end up with exactly these, and neither fails."""
    records = realistic(1_000)
    failures: list[BaseException] = []

    def attempt(seed: int) -> None:
        mine = list(records)
        random.Random(seed).shuffle(mine)
        try:
            write(url, mine)
        except BaseException as cause:  # noqa: BLE001 - handed to the test's own thread
            failures.append(cause)

    threads = [threading.Thread(target=attempt, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    nodes = contents(url)
    assert all(nodes[wanted.path] == (wanted.value, wanted.version) for wanted in records)


def test_value_that_the_server_refuses(url: StoreUrl) -> None:
    """A value larger than the server takes is named with the cure, and not retried indefinitely."""
    with pytest.raises(RecordNotWritable, match=r"/huge is larger .* jute.maxbuffer"):
        write(url, [record("/small", b"s"), record("/huge", bytes(5_000_000))], timeout=3)


@pytest.mark.parametrize("path", ["/a//b", "/a/", "no-slash", "/a/../b", "/a/\x07", "/a/🜁"])
def test_path_that_zookeeper_refuses(url: StoreUrl, path: str) -> None:
    """A key that is not a valid path in ZooKeeper is reported at once, before anything is sent."""
    with ZooKeeperWriter(url) as writer, pytest.raises(RecordNotWritable, match="not a valid path in ZooKeeper"):
        writer.put(record(path), over=None)


def test_from_store_to_store(new_url: Callable[[], StoreUrl]) -> None:
    """A copy made with reader and writer alone scans equal to its source."""
    source, target = new_url(), new_url()
    write(source, realistic(500))
    with ZooKeeperReader(source) as reader, ZooKeeperWriter(target) as writer:
        for partition in reader.partitions(3):
            for batch in reader.scan(partition):
                for item in batch:
                    assert isinstance(item, Record)
                    writer.put(item, over=ABSENT)
        writer.flush()
    assert contents(source) == contents(target)
    before, after = by_path(scan(source)), by_path(scan(target))
    assert all(after[path].count >= item.count for path, item in before.items() if keeps_count(path, item.value))


def test_server_that_dies_is_reported(victim: Server) -> None:
    """A server lost in mid-copy ends the flush with StoreUnreachable, and a repetition completes the copy."""
    url = parse_store_url(f"{victim.address}/dies")
    records = realistic(1_500)
    with ZooKeeperWriter(url, timeout=5) as writer:
        for wanted in records[: len(records) // 2]:
            writer.put(wanted, over=None)
        victim.kill()
        with pytest.raises(StoreUnreachable):
            writer.flush()
    victim.start()
    write(url, records)
    nodes = contents(url)
    assert all(nodes[wanted.path] == (wanted.value, wanted.version) for wanted in records)


def test_a_flag_set_with_its_version(url: StoreUrl, kazoo: Any) -> None:
    """A commit that names the version can change a record of the writer, as for a migration's flag."""
    write(url, [record("/flag", b"PREPARATION", 2)])
    with Coordination(url) as session:
        session.commit([Set("/flag", b"COPYING", 2), Create("/claim", b"me")])
    assert kazoo.get(url.root + "/flag")[0] == b"COPYING"


def test_a_guarded_writer_needs_no_claim_in_its_store(url: StoreUrl) -> None:
    """A writer whose guard asks another store can write; one whose guard refuses leaves nothing in the store."""

    def refuse() -> None:
        raise StoreConflict("another run took the claim")

    write(url, [record("/a", b"1")])
    with ZooKeeperWriter(url, guard=refuse) as writer:
        writer.put(record("/late"), over=None)
        with pytest.raises(StoreConflict, match="another run"):
            writer.flush()
    assert contents(url) == {b"/a": (b"1", 0)}
    with ZooKeeperWriter(url, guard=lambda: None) as writer:
        writer.put(record("/b", b"2"), over=None)
        assert writer.flush() == 1
    with Coordination(url) as other:
        assert other.children(COORDINATOR.decode()) == []
    assert contents(url)[b"/b"] == (b"2", 0)
