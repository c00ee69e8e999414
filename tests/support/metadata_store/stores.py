"""Whole stores, read without any of the code that copies them: ZooKeeper by kazoo, Oxia by plain gRPC."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from clients.oxia import oxia_pb2 as pb
from tests.support.waiting import wait_until_equal

COORDINATOR = "/pulsar/migration-coordinator"
FLAG = f"{COORDINATOR}/migration"
CLAIM = f"{COORDINATOR}/pulsar-migrate"
_SERVICE = "/io.streamnative.oxia.proto.OxiaClient"
_TIMEOUT = 20.0
_SESSIONS_LIMIT = 60.0
_WINDOW = 500
_CONTAINER_OR_TTL = 1 << 63
# Parents whose next sequential child must not get a number that was given before.
_COUNTERS = re.compile(r"^(/ledgers/idgen|/ledgers/idgen-long(/.*)?|/counters/[^/]+)$")
_LEDGER = re.compile(r"^/ledgers((?:/\d+)+)/L(\d+)$")

_OTHER_ROOTS = (
    "a ballast bench big binary both bulk c compared container counter counters-of crash d d0 deed deep deeq "
    "dropped elsewhere empty ephemeral flag flat floor fresh frozen gone grown guarded half huge kin kin-d "
    "large late left-once long-ledgers mark marker mine names never new next-source none not-released nothing "
    "odd often old order other over own parent parts persistent r race raised-ledgers records recreated "
    "removed scanned-ledgers scratch second-ledgers secret set-often slow-copy small another strangers sub "
    "taken target tenants tool top trap-ledgers trip versions warm-up wide x "
)
OTHER_ROOTS = tuple(f"path:/{name}" for name in _OTHER_ROOTS.split())
"""Top-level records that tests make and Pulsar does not have, as inputs accept them."""


class Znode(NamedTuple):
    """One znode: what it holds, and its statistics as the server gives them."""

    value: bytes
    version: int
    created: int
    """How many children it ever had."""
    ephemeral: bool
    mtime: int
    last_zxid: int


class OxiaRecord(NamedTuple):
    """One record of Oxia, as the server gives it."""

    value: bytes
    version: int
    modifications: int
    ephemeral: bool
    modified_ms: int


Tree = dict[str, Znode]
Records = dict[str, OxiaRecord]


@contextmanager
def kazoo(zk_url: str, *, digest: str = "") -> Generator[Any]:
    """Open a session for as long as the context lasts, with `user:password` if given; its calls have no types."""
    auth = [("digest", digest)] if digest else None
    # By itself it waits up to a minute between two tries, and a watch would not see that a server is back.
    retry = {"max_tries": -1, "max_delay": 1}
    client = KazooClient(zk_url.removeprefix("zk:"), timeout=10, auth_data=auth, connection_retry=retry)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def read_zookeeper(zk_url: str, *, without_coordinator: bool = True) -> Tree:
    """Return all nodes below the chroot by path, without the root itself and `/zookeeper`."""
    with kazoo(zk_url) as client:
        return _walk(client, without_coordinator=without_coordinator)


def read_oxia(oxia_url: str, *, without_coordinator: bool = True) -> Records:
    """Return all records of the namespace by key, without Oxia's own."""
    address, _, namespace = oxia_url.removeprefix("oxia://").partition("/")
    records_by_key: Records = {}
    with _channel(address) as channel:
        for shard in _shards(channel, namespace or "default"):
            scan = channel.unary_stream(
                f"{_SERVICE}/RangeScan",
                pb.RangeScanRequest.SerializeToString,
                pb.RangeScanResponse.FromString,
            )
            for message in scan(pb.RangeScanRequest(shard=shard), timeout=_TIMEOUT):
                for record in message.records:
                    path = record.key.decode()
                    if not path.startswith("__oxia/") and not (without_coordinator and _coordination(path)):
                        records_by_key[path] = _record(record)
    return records_by_key


def committed_ms(zk_url: str) -> int:
    """Return when the flag got its present state, by ZooKeeper's clock; it is set again some seconds later."""
    with kazoo(zk_url) as client:
        claim, _ = client.get(CLAIM)
        return json.loads(claim)["moved_ms"] or client.get(FLAG)[1].mtime


def know_cluster(url: str, name: str) -> None:
    """Register another cluster in a cluster's metadata, as for geo-replication."""
    with kazoo(url) as client:
        client.create(f"/admin/clusters/{name}", b"{}", makepath=True)


def put_oxia(oxia_url: str, key: str, value: bytes) -> int:
    """Write one record, and return its version id, which counts the writes of its shard."""
    address, _, namespace = oxia_url.removeprefix("oxia://").partition("/")
    with _channel(address) as channel:
        (shard,) = _shards(channel, namespace or "default")
        write = channel.unary_unary(f"{_SERVICE}/Write", pb.WriteRequest.SerializeToString, pb.WriteResponse.FromString)
        request = pb.WriteRequest(shard=shard, puts=[pb.PutRequest(key=key.encode(), value=value)])
        (answer,) = write(request, timeout=_TIMEOUT).puts
        assert answer.status == pb.OK
        return answer.version.version_id


def delete_oxia(oxia_url: str, key: str) -> None:
    """Delete one record."""
    address, _, namespace = oxia_url.removeprefix("oxia://").partition("/")
    with _channel(address) as channel:
        (shard,) = _shards(channel, namespace or "default")
        write = channel.unary_unary(f"{_SERVICE}/Write", pb.WriteRequest.SerializeToString, pb.WriteResponse.FromString)
        request = pb.WriteRequest(shard=shard, deletes=[pb.DeleteRequest(key=key.encode())])
        (answer,) = write(request, timeout=_TIMEOUT).deletes
        assert answer.status == pb.OK


def last_zxid(zk_url: str, *, digest: str = "") -> int:
    """Return the highest transaction id of any persistent node, including the coordinator's and the server's."""
    with kazoo(zk_url, digest=digest) as client:
        everything = _walk(client, without_coordinator=False, without_server=False)
    return max(node.last_zxid for node in everything.values() if not node.ephemeral)


def persistent(tree: Mapping[str, Znode] | Mapping[str, OxiaRecord]) -> set[str]:
    """Return the paths of the nodes that belong to no session."""
    return {path for path, node in tree.items() if not node.ephemeral}


def wait_until_unused(*urls: str) -> None:
    """Wait until no session has a record in these stores: that of a service which was killed lasts for longer."""

    def held() -> set[str]:
        trees = [read_zookeeper(url) if url.startswith("zk:") else read_oxia(url) for url in urls]
        return {path for tree in trees for path in set(tree) - persistent(tree)}

    wait_until_equal("the records of sessions", held, set[str](), _SESSIONS_LIMIT)


def ledger_ids(paths: set[str]) -> set[int]:
    """Return the ids in BookKeeper's metadata: `/ledgers/00/0000/L0042` is ledger 42."""
    matches = (_LEDGER.match(path) for path in paths)
    return {int(match[1].replace("/", "") + match[2]) for match in matches if match}


def assert_equal(source: Tree, target: Records, *, until_ms: int | None = None) -> int:
    """Compare a ZooKeeper's contents with its copy in Oxia, as PIP-454 promises it; returns the records compared.

    The same paths, values, and versions as version ids; modification counts that tell a first version from later ones,
    and from which sequences continue; no ephemeral that outlives its session.

    Args:
        source: read after the last write to it.
        target: the copy.
        until_ms: brokers use the target since then, so records that were written later may differ; none may be missing.
    """
    wanted = persistent(source)
    assert wanted - set(target) == set(), "missing in the target"
    lasting = {path for path in wanted if target[path].ephemeral}
    assert lasting == set(), "persistent in the source, of a session in the target"
    later = {path for path, record in target.items() if until_ms is not None and record.modified_ms >= until_ms}
    # Brokers make the parents of ephemerals containers, which ZooKeeper removes within a minute once they are empty.
    containers = {
        path for path in target if path.startswith(("/namespace/", "/loadbalance/")) and not target[path].value
    }
    extra = persistent(target) - wanted - later - containers
    assert extra == set(), "in the target alone, or an ephemeral that became persistent"
    compared = wanted - later
    different = {
        path: (source[path]._replace(value=b""), target[path]._replace(value=b""))
        for path in compared
        if not _same(path, source[path], target[path])
    }
    assert different == {}
    return len(compared)


def assert_same_tree(source: Tree, target: Tree, *, versions: bool = True) -> int:
    """Compare a ZooKeeper's contents with its copy in another ZooKeeper; returns the number of nodes compared.

    Sequence counters may have gone further, never back.
    """
    assert persistent(source) == persistent(target)
    for path in persistent(source):
        mine, theirs = source[path], target[path]
        assert theirs.value == mine.value, path
        assert not versions or theirs.version == mine.version, path
        assert not _COUNTERS.match(path) or theirs.created >= mine.created, path
    return len(persistent(source))


def changes(before: Tree, after: Tree) -> dict[str, tuple[Znode | None, Znode | None]]:
    """Return the nodes that were created, set or deleted between two readings."""
    return {
        path: (before.get(path), after.get(path))
        for path in {*before, *after}
        if _content(before.get(path)) != _content(after.get(path))
    }


def _same(path: str, mine: Znode, theirs: OxiaRecord) -> bool:
    if (mine.value, mine.version) != (theirs.value, theirs.version):
        return False
    if _COUNTERS.match(path) or not mine.value:
        return theirs.modifications == max(mine.version, mine.created)
    return theirs.modifications == mine.version


def _content(node: Znode | None) -> tuple[bytes, int, int, bool] | None:
    return None if node is None else (node.value, node.version, node.mtime, node.ephemeral)


def _walk(client: Any, *, without_coordinator: bool, without_server: bool = True) -> Tree:
    """Walk breadth first; leave out a node that vanishes on the way."""
    tree: Tree = {}
    level = ["/"]
    while level:
        deeper: list[str] = []
        for start in range(0, len(level), _WINDOW):
            asked = [(path, client.get_async(path)) for path in level[start : start + _WINDOW]]
            listed = [(path, client.get_children_async(path)) for path in level[start : start + _WINDOW]]
            for path, answer in asked:
                try:
                    value, stat = answer.get(timeout=_TIMEOUT)
                except NoNodeError:
                    continue
                if path != "/":
                    tree[path] = _znode(value, stat)
            for path, answer in listed:
                try:
                    names = answer.get(timeout=_TIMEOUT)
                except NoNodeError:
                    continue
                children = (f"{path.rstrip('/')}/{name}" for name in names)
                deeper += [
                    child
                    for child in children
                    if not (without_coordinator and _coordination(child))
                    and not (without_server and child == "/zookeeper")
                ]
        level = deeper
    return tree


def _znode(value: bytes | None, stat: Any) -> Znode:
    # Containers and nodes with a time to live show their kind in the sign of the owner.
    owner = int(stat.ephemeralOwner) & (_CONTAINER_OR_TTL * 2 - 1)
    return Znode(
        value or b"",
        stat.version,
        (stat.cversion + stat.numChildren) // 2,
        bool(owner) and owner < _CONTAINER_OR_TTL,
        stat.mtime,
        max(stat.czxid, stat.mzxid, stat.pzxid),
    )


def _coordination(path: str) -> bool:
    return path == COORDINATOR or path.startswith(f"{COORDINATOR}/")


def _channel(address: str) -> grpc.Channel:
    options = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))
    return grpc.insecure_channel(address, options=options)


def _shards(channel: grpc.Channel, namespace: str) -> list[int]:
    ask = channel.unary_stream(
        f"{_SERVICE}/GetShardAssignments",
        pb.ShardAssignmentsRequest.SerializeToString,
        pb.ShardAssignments.FromString,
    )
    call = ask(pb.ShardAssignmentsRequest(namespace=namespace), timeout=_TIMEOUT)
    try:
        for layout in call:
            return [shard.shard for shard in layout.namespaces[namespace].assignments]
    finally:
        call.cancel()
    raise AssertionError("no shard assignments")


def _record(response: pb.GetResponse) -> OxiaRecord:
    version = response.version
    return OxiaRecord(
        response.value,
        version.version_id,
        version.modifications_count,
        version.HasField("session_id"),
        version.modified_timestamp,
    )
