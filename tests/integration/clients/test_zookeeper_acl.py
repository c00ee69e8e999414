"""Nodes of ours are protected where a server knows who we are, and those of Pulsar are open as before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from clients.cas.store import Check, Create, Set, remove_tree
from clients.errors import StoreConflict, StoreDenied
from clients.stores import Access, StoreAccess, open_cas, open_cas_reader, revoke_permits
from clients.zookeeper import Connection, ZooKeeperReader, ZooKeeperWriter, wire
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.acl import is_own
from models.lifecycle.claim import CLAIM
from models.migration_flag import FLAG
from models.store_url import StoreUrl, parse_store_url
from models.topic_controller.record import ROOT
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.secure_zookeeper import SecureZooKeeper
from tests.support.clients.zookeeper_records import record, write
from tests.support.stacks import MakeStack

OPEN = {("world", "anyone", 31)}
READABLE = ("world", "anyone", 1)
OURS = {("sasl", "migrate", 31), ("x509", "CN=worker", 31), READABLE}
COORDINATOR = CLAIM.rpartition("/")[0]


@pytest.fixture(scope="module")
def secure(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> SecureZooKeeper:
    """Certificates and accesses."""
    return SecureZooKeeper(toolchain, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack, secure: SecureZooKeeper) -> Stack:
    """A ZooKeeper that takes TLS and logins only."""
    return make_stack(StackSpec(zookeepers=1, zookeeper_security=secure.security))


@pytest.fixture(params=["", "/a/chroot"])
def url(request: pytest.FixtureRequest, stack: Stack, secure: SecureZooKeeper) -> Iterator[StoreUrl]:
    """An empty store."""
    store = parse_store_url(f"{stack.zk_url}{request.param}")
    yield store
    with open_cas(store, Access(StoreAccess(secure.access))) as cas:
        for name in cas.children("/"):
            if name != "zookeeper":
                remove_tree(cas, f"/{name}", cas.delete)


def acl(url: StoreUrl, access: ZooKeeperAccess, path: str) -> set[tuple[str, str, int]]:
    """Return scheme, identity and permissions of each entry of a node's ACL."""
    with Connection(url, access=access) as connection:
        name = connection.absolute(path.encode())
        frame = connection.call(wire.GET_ACL, name, wire.buffer(name)).frame
    entries: set[tuple[str, str, int]] = set()
    offset = wire.BODY + 4
    for _ in range(int.from_bytes(frame[wire.BODY : offset])):
        permissions = int.from_bytes(frame[offset : offset + 4])
        scheme, offset = wire.read_buffer(frame, offset + 4)
        identity, offset = wire.read_buffer(frame, offset)
        entries.add((scheme.decode(), identity.decode(), permissions))
    return entries


def test_claims_belong_to_all_workers_with_the_credentials(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """A worker's claim can be read by everyone, and changed and deleted by any worker with the same credentials."""
    with open_cas(url, Access(StoreAccess(secure.access))) as store:
        store.create(CLAIM, b"1")
        store.create(FLAG, b"flag")
    assert acl(url, secure.access, CLAIM) == OURS
    for open_node in (FLAG, COORDINATOR, "/pulsar"):
        assert acl(url, secure.access, open_node) == OPEN
    with open_cas(url, Access(StoreAccess(secure.other))) as store:
        node = store.get(CLAIM)
        assert node
        with pytest.raises(StoreDenied, match="give credentials that may"):
            store.set(CLAIM, b"forged", node.version)
        with pytest.raises(StoreDenied):
            store.transaction([Set(CLAIM, b"forged", node.version)])
        store.set(FLAG, b"of a broker", -1)
    with open_cas(url, Access(StoreAccess(replace(secure.access, tls=secure.other.tls)))) as store:
        store.transaction([Check(CLAIM, node.version), Create(f"{CLAIM}-topics", b"")])
        store.set(CLAIM, b"2", node.version)
    with open_cas(url, Access(StoreAccess(secure.access))) as store:
        node = store.get(CLAIM)
        assert node
        assert node.value == b"2"
        remove_tree(store, f"{CLAIM}-topics", store.delete)
        store.delete(CLAIM, node.version)


def test_nodes_of_a_transaction_are_protected(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """Each node of a transaction has the ACL of its own path; missing parents too."""
    progress = "/admin/bookie-clusters/orchestrator/one"
    with open_cas(url, Access(StoreAccess(secure.access))) as store:
        store.create(progress, b"")
        store.create(f"{ROOT}/tenant", b"")
        store.transaction([Create(f"{ROOT}/tenant/topic", b""), Create("/admin/bookie-clusters/first", b"")])
    for own in (progress, progress.rpartition("/")[0], ROOT, f"{ROOT}/tenant", f"{ROOT}/tenant/topic"):
        assert acl(url, secure.access, own) == OURS
    for open_node in ("/admin", "/admin/bookie-clusters", "/admin/bookie-clusters/first", "/pulsar"):
        assert acl(url, secure.access, open_node) == OPEN
    with open_cas(url, Access(StoreAccess(secure.other))) as store, pytest.raises(StoreDenied):
        store.delete(f"{ROOT}/tenant/topic", -1)


def test_permits_are_protected_and_can_be_revoked(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """A writer's permit cannot be forged by another client, and another worker takes it back."""
    with open_cas(url, Access(StoreAccess(secure.access))) as store:
        store.create(CLAIM, b"1")
    taken: list[bool] = []

    def guard() -> None:
        if taken:
            raise StoreConflict("another run took the claim")

    with ZooKeeperWriter(url, access=secure.access, keep_versions=True, guard=guard) as writer:
        writer.put(record("/copied"), over=None)
        writer.flush()
        with open_cas_reader(url, Access(StoreAccess(secure.access))) as reader:
            (permit,) = [name for name in reader.children(COORDINATOR) if "writer" in name]
        assert acl(url, secure.access, f"{COORDINATOR}/{permit}") == OURS
        taken.append(True)
        revoke_permits(url, Access(StoreAccess(secure.access)))
        writer.put(record("/late"), over=None)
        with pytest.raises(StoreConflict, match="another run took the claim"):
            writer.flush()


def test_copies_of_own_nodes_are_protected_again(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """A copy gives nodes of ours their ACL, and leaves all others open; reading which ones are protected finds them."""
    own = [f"{ROOT}/tenant", f"{ROOT}/tenant/topic"]
    others = ["/managed-ledgers", "/managed-ledgers/orchestrator", "/pulsar/pulsar-migrated"]
    records = [record(path, b"v", 2) for path in ("/pulsar", ROOT, *own, *others)]
    write(url, records, access=secure.access, keep_versions=True)
    for path in (ROOT, *own):
        assert acl(url, secure.access, path) == OURS
    for path in others:
        assert acl(url, secure.access, path) == OPEN
    with ZooKeeperReader(url, access=secure.access) as reader:
        protected = reader.protected([each.path for each in records])
    assert protected == [path for path in protected if is_own(path)] != []


def test_a_server_that_knows_no_identity(stack: Stack, url: StoreUrl, secure: SecureZooKeeper) -> None:
    """A certificate that the server does not ask for protects nothing, and does not stop a migration."""
    settings = {"ssl.clientAuth": "none", "enforce.auth.enabled": "false"}
    stack.reconfigure("zookeeper-1", **settings)
    try:
        unknown = replace(secure.access, login=None)
        with open_cas(url, Access(StoreAccess(unknown))) as store:
            store.create(CLAIM, b"1")
            store.transaction([Create(f"{CLAIM}-topics", b"")])
        write(url, [record(f"{CLAIM}-copies", b"v")], access=unknown)
        for path in (CLAIM, f"{CLAIM}-topics", f"{CLAIM}-copies"):
            assert acl(url, unknown, path) == OPEN
    finally:
        stack.reconfigure("zookeeper-1", **{"ssl.clientAuth": "need", "enforce.auth.enabled": "true"})


def test_without_credentials_nodes_are_open(make_stack: MakeStack) -> None:
    """As before: a client without credentials works with open nodes."""
    url = parse_store_url(make_stack(StackSpec(zookeepers=1)).zk_url)
    with open_cas(url, Access()) as store:
        store.create(CLAIM, b"1")
    assert acl(url, ANONYMOUS, CLAIM) == OPEN


def test_credentials_of_addauth_protect_too(make_stack: MakeStack) -> None:
    """A digest credential is an identity like a login."""
    url = parse_store_url(make_stack(StackSpec(zookeepers=1)).zk_url)
    access = ZooKeeperAccess(auth=(("digest", b"us:secret"),), destinations=LOOPBACK_PLAIN)
    with open_cas(url, Access(StoreAccess(access))) as store:
        store.create(CLAIM, b"1")
    entries: Any = acl(url, access, CLAIM)
    assert {(scheme, permissions) for scheme, _, permissions in entries} == {("digest", 31), ("world", 1)}
    with open_cas(url, Access()) as store, pytest.raises(StoreDenied):
        store.set(CLAIM, b"forged", -1)
