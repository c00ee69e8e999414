"""ZooKeeper's connection and bulk reader on real servers."""

from __future__ import annotations

import base64
import hashlib
import random
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from clients.errors import StoreDenied, StoreUnreachable
from clients.store import Partition, Record, Unreadable
from clients.stores import Access, trees_overlap
from clients.zookeeper import Connection, ZooKeeperReader, ZooKeeperWriter, wire
from clients.zookeeper.access import ZooKeeperAccess
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.server import Server
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.zookeeper_records import by_path, record, scan, write

pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]

CREATE_CONTAINER, CONTAINER_FLAG = 19, 4
CREDENTIAL = ("digest", b"owner:secret")


def raw_create(connection: Connection, op: int, path: bytes, data: bytes | None, flags: int) -> None:
    """Create a node as kazoo cannot: a container, or one without data."""
    target = connection.absolute(path)
    value = wire.buffer(data) if data is not None else struct.pack(">i", -1)
    connection.call(op, target, wire.buffer(target) + value + wire.OPEN_ACL + struct.pack(">i", flags))


def odd_tree(url: StoreUrl) -> None:
    """Create nodes of every unusual kind."""
    deep = ["/deep" + "/d" * depth for depth in range(300)]
    rng = random.Random(7)
    write(
        url,
        [
            record("/empty"),
            record("/binary", bytes(range(256))),
            record("/large", rng.randbytes(1_048_000)),
            record("/set-often", b"\0", version=37),
            record("/ünïcödé/子/ꙮ", b"wert"),
            record("/ledgers/idgen", b"", count=1234),
            *(record(path, path.encode()) for path in deep),
            *(record(f"/wide/child-{number:05d}", b"%d" % number) for number in range(3_000)),
        ],
    )
    with Connection(url) as connection:
        raw_create(connection, CREATE_CONTAINER, b"/container", b"c", CONTAINER_FLAG)
        raw_create(connection, wire.CREATE, b"/none", None, 0)
        raw_create(connection, wire.CREATE, b"/empty/lock-", b"", 2)
        raw_create(connection, wire.CREATE, b"/container/inside", b"i", 0)


def walk(kazoo: Any, root: str) -> dict[bytes, Record]:
    """Return the same records as kazoo sees them, one call a node."""
    nodes: dict[bytes, Record] = {}
    paths = [root + "/" + name for name in kazoo.get_children(root)]
    while paths:
        path = paths.pop()
        value, stat = kazoo.get(path)
        container = -(1 << 63)
        nodes[path[len(root) :].encode()] = Record(
            path[len(root) :].encode(),
            value or b"",
            stat.version,
            (stat.cversion + stat.numChildren) // 2,
            0 if stat.ephemeralOwner == container else stat.ephemeralOwner,
            stat.mzxid,
            stat.pzxid,
            stat.czxid,
        )
        paths += [path + "/" + name for name in kazoo.get_children(path)]
    return nodes


@pytest.mark.parametrize("parts", [1, 7])
def test_scan_reads_every_unusual_node_once(url: StoreUrl, kazoo: Any, parts: int) -> None:
    """A scan in any number of parts reads every unusual node once, exactly as another client reads it."""
    odd_tree(url)
    session = kazoo.client_id[0]
    kazoo.create(url.root + "/mine", b"e", ephemeral=True)
    expected = walk(kazoo, url.root)
    nodes = by_path(scan(url, parts))
    assert nodes == expected
    assert nodes[b"/mine"].owner == session
    assert nodes[b"/container"].owner == 0
    assert nodes[b"/none"].value == b""
    assert nodes[b"/ledgers/idgen"].count == 1234
    kazoo.delete(url.root + "/mine")


def test_root_leaves_out_the_servers_own_nodes(server: Server, url: StoreUrl) -> None:
    """Without a chroot `/zookeeper` is left out, and only that."""
    write(url, [record("/zookeeper/config", b"mine")])
    whole = by_path(scan(parse_store_url(server.address)))
    assert not any(path.startswith(b"/zookeeper") for path in whole)
    assert url.root.encode() + b"/zookeeper/config" in whole
    assert b"/" not in whole
    assert scan(url)[-1].path == b"/zookeeper/config"


def test_missing_chroot_reads_as_empty(url: StoreUrl) -> None:
    """A store that does not exist yet has no records, children or parts."""
    with ZooKeeperReader(url) as reader:
        assert reader.partitions(4) == []
        assert reader.children(b"/") == []
        assert reader.read([b"/a"]) == [None]


def test_wide_directory_is_split_evenly(url: StoreUrl) -> None:
    """A directory of 20,000 children is split, and no part has twice as much as another."""
    names = [f"/flat/{number:x}-ø" for number in range(20_000)]
    write(url, [record(name, name.encode()) for name in names])
    with ZooKeeperReader(url) as reader:
        parts = reader.partitions(4)
        sizes = [sum(len(batch) for batch in reader.scan(partition)) for partition in parts]
    assert len(parts) == 4
    assert sum(sizes) == 20_001
    assert max(sizes) < 2 * min(sizes)


def test_large_siblings_do_not_swamp_the_server(url: StoreUrl) -> None:
    """15 siblings of 1 MB are read whole, with no answer that holds many of them."""
    value = random.Random(3).randbytes(1_000_000)
    with ZooKeeperWriter(url) as writer:
        for number in range(15):
            writer.put(record(f"/big/{number:03d}", value[number:] + value[:number]), over=None)
        assert writer.flush() == 15
    sizes: list[int] = []
    with ZooKeeperReader(url) as reader:
        for partition in reader.partitions(1):
            for batch in reader.scan(partition):
                sizes.append(sum(len(item.value) for item in batch if isinstance(item, Record)))
                for item in batch:
                    number = int(item.path[5:] or 0)
                    assert not isinstance(item, Record) or not item.value or item.value[-1:] == value[number - 1 :][:1]
    assert sum(sizes) == 15_000_000
    assert max(sizes) <= 4_000_000


def test_unreadable_nodes_are_reported(url: StoreUrl, kazoo: Any) -> None:
    """A node that its ACL protects is reported with its path, and read once credentials are given."""
    digest = base64.b64encode(hashlib.sha1(b"owner:secret").digest()).decode()
    acl = ACL(31, Id("digest", f"owner:{digest}"))
    kazoo.create(url.root + "/open", b"o", makepath=True)
    kazoo.create(url.root + "/secret", b"s", acl=[acl])
    guard: Any = KazooClient(kazoo.hosts[0][0] + f":{kazoo.hosts[0][1]}", auth_data=[("digest", "owner:secret")])
    guard.start()
    guard.create(url.root + "/secret/inside", b"i", acl=[acl])
    guard.stop()
    for parts in (1, 3):
        records = {record.path: record for record in scan(url, parts)}
        assert isinstance(records[b"/open"], Record)
        refused = records[b"/secret"]
        assert isinstance(refused, Unreadable)
        assert "/secret" in refused.reason
        assert "credentials" in refused.reason
        assert set(by_path(scan(url, parts, ZooKeeperAccess(auth=(CREDENTIAL,), destinations=LOOPBACK_PLAIN)))) == {
            b"/open",
            b"/secret",
            b"/secret/inside",
        }
    with ZooKeeperReader(url) as reader, pytest.raises(StoreDenied, match="/secret"):
        reader.children(b"/secret")


def test_wrong_scheme_is_denied(url: StoreUrl) -> None:
    """A credential that the server does not take ends in StoreDenied, which names its scheme."""
    with pytest.raises(StoreDenied, match="nonsense"):
        Connection(url, access=ZooKeeperAccess(auth=(("nonsense", b"a:b"),), destinations=LOOPBACK_PLAIN))


@pytest.mark.exhaustive
def test_nodes_that_vanish_are_left_out(url: StoreUrl, kazoo: Any) -> None:
    """Nodes and directories deleted during a scan are left out, and the rest is read."""
    write(url, [record(f"/d{top}/{number:04d}", b"v") for top in range(4) for number in range(3_000)])
    with ZooKeeperReader(url) as reader:
        batches = reader.scan(Partition((), tuple(reader.children(b"/")), -1, b"", b""))
        seen = {item.path for item in next(batches)}
        kazoo.delete(url.root + "/d3", recursive=True)
        kazoo.delete(url.root + "/d0/0000")
        seen |= {item.path for batch in batches for item in batch}
    remaining = set(by_path(scan(url)))
    assert len(remaining) == 3 * 3_001 - 1
    assert seen >= remaining


def test_read_keeps_the_order_asked_for(url: StoreUrl) -> None:
    """Read gives the records of the paths in their order, and None for one that is absent."""
    write(url, [record("/a/b", b"1", 2), record("/c", b"3")])
    with ZooKeeperReader(url) as reader:
        records = reader.read([b"/c", b"/none", b"/a/b", b"/a"])
        assert [item and (item.path, item[1]) for item in records] == [
            (b"/c", b"3"),
            None,
            (b"/a/b", b"1"),
            (b"/a", b""),
        ]
        assert reader.children(b"/a") == [b"/a/b"]
        assert reader.children(b"/none") == []


def test_scan_survives_a_lost_connection(victim: Server) -> None:
    """A server that restarts during a scan costs no record and doubles none."""
    url = parse_store_url(f"{victim.address}/survives")
    write(url, [record(f"/{top}/{number:04d}", b"v" * 500) for top in range(4) for number in range(5_000)])
    with ZooKeeperReader(url) as reader:
        (partition,) = reader.partitions(1)
        batches = reader.scan(partition)
        seen = list(next(batches))
        victim.kill()
        victim.start()
        seen += [item for batch in batches for item in batch]
    assert len(by_path(seen)) == 4 * 5_001


def test_unreachable_names_every_host() -> None:
    """When no server answers, the error names each of them and why."""
    with pytest.raises(StoreUnreachable) as error:
        Connection(parse_store_url("127.0.0.1:1,127.0.0.1:2/x"), timeout=2)
    assert "127.0.0.1:1: " in str(error.value)
    assert "127.0.0.1:2: " in str(error.value)


def test_second_host_is_tried(server: Server) -> None:
    """A server that is down does not matter while another one answers."""
    for _ in range(4):
        with Connection(parse_store_url(f"127.0.0.1:1,{server.address}")) as connection:
            assert connection.host == server.address


def test_silent_server_times_out(victim: Server) -> None:
    """A server that hangs ends a call with StoreUnreachable in the time given."""
    with ZooKeeperReader(parse_store_url(victim.address), timeout=3) as reader:
        reader.children(b"/")
        victim.pause()
        began = time.monotonic()
        try:
            with pytest.raises(StoreUnreachable):
                reader.children(b"/")
        finally:
            victim.resume()
        assert time.monotonic() - began < 30


def write_snapshot(folder: Path, nodes: list[tuple[str, bytes, int, int]]) -> None:
    """Write a snapshot that ZooKeeper 3.9 reads: (path, value, version, children ever created) of each node."""
    body = bytearray(b"ZKSN" + struct.pack(">iqii", 2, -1, 0, 0))
    for path, value, version, created in [("", b"", 0, 0), ("/zookeeper", b"", 0, 0), *nodes]:
        name = path.encode()
        body += struct.pack(">i", len(name)) + name + struct.pack(">i", len(value)) + value
        body += struct.pack(">qqqqqiiiqq", -1, 1, 1, 0, 0, version, created, 0, 0, 1)
    body += struct.pack(">i", 1) + b"/"
    end = struct.pack(">i", 1) + b"/"
    for old in folder.iterdir():
        old.unlink()
    (folder / "snapshot.1").write_bytes(body + struct.pack(">q", zlib.adler32(body)) + end)


@pytest.mark.exhaustive
def test_numbers_near_their_end_and_a_huge_directory(victim: Server) -> None:
    """Versions and counts near 2^31 are read right, and 200,000 children of one node are split and read."""
    victim.kill()
    nodes = [("/old", b"o", (1 << 31) - 3, 0), ("/counter", b"", 0, (1 << 31) - 2), ("/flat", b"", 0, 200_000)]
    nodes += [(f"/flat/{number:010d}", b"%d" % number, 1, 0) for number in range(200_000)]
    write_snapshot(victim.folder / "data" / "version-2", nodes)
    victim.start()
    url = parse_store_url(victim.address)
    with ZooKeeperReader(url) as reader:
        old, counter, flat = (
            record for record in reader.read([b"/old", b"/counter", b"/flat"]) if isinstance(record, Record)
        )
        assert (old.version, counter.count, flat.count) == ((1 << 31) - 3, (1 << 31) - 2, 200_000)
        parts = reader.partitions(3)
        sizes = [sum(len(batch) for batch in reader.scan(partition)) for partition in parts]
    assert sum(sizes) == 200_003
    assert max(sizes) < 2 * min(sizes)


def test_one_store_by_two_names(server: Server, victim: Server) -> None:
    """The store itself shows whether two addresses lead to it; what has the same nodes is another one all the same."""
    for host in (server.address, victim.address):
        write(parse_store_url(f"zk:{host}/names"), [record("/ledgers/idgen")])
    alias = server.address.replace("127.0.0.1", "localhost")
    assert alias != server.address
    for source, other, overlap in [
        ("", alias, True),
        ("", f"{alias}/names/ledgers", True),
        ("/names", f"{alias}/names/ledgers", True),
        ("/names", f"{alias}/names", True),
        ("/names", alias, True),
        ("/names", f"{alias}/other", False),
        ("", victim.address, False),
        ("", f"{victim.address}/names/ledgers", False),
        ("/names", f"{victim.address}/names", False),
    ]:
        first, second = parse_store_url(f"zk:{server.address}{source}"), parse_store_url(f"zk:{other}")
        assert trees_overlap(first, second, Access()) is trees_overlap(second, first, Access()) is overlap, (
            source,
            other,
        )
    assert not trees_overlap(first, parse_store_url(f"oxia://{server.address}/names"), Access())
    with pytest.raises(StoreUnreachable):
        trees_overlap(first, parse_store_url("zk:127.0.0.1:1/names"), Access())
