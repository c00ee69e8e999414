"""Bookies that talk TLS, and ask the client who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from clients.bookie_access import BookieAccess
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.pool import Bookies
from clients.errors import StoreUnreachable, StoreUnsupported
from clients.stores import Access
from clients.tls import Tls
from models.store_url import parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.bookies import Cluster, recover_ledger
from tests.support.clients.certificates import Authority, Identity
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

ONE, TWO = "bookie-1", "bookie-2"
DATAS = [bytes([number % 251]) * (number * 37 % 5000) for number in range(2000)]
LARGE = [bytes([number]) * 3_000_000 for number in range(5)]
MakeCluster = Callable[[Tls | None], Cluster]


@pytest.fixture(scope="module")
def authority(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the bookies' and the client's certificates."""
    return Authority(toolchain, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    """The client's own certificate."""
    return authority.identity("client", "127.0.0.9")


@pytest.fixture(scope="module")
def sealed(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """The jars without Bouncy Castle's ordinary ones: BookKeeper's TLS loads the sealed ones of the same packages."""
    jars = tmp_path_factory.mktemp("jars")
    for jar in toolchain.jars.glob("*.jar"):
        if not jar.name.startswith(("bcprov-", "bcpkix-", "bcutil-")):
            (jars / jar.name).symlink_to(jar)
    return replace(toolchain, jars=jars, archives=None)


@pytest.fixture(scope="module")
def stack(sealed: Toolchain, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Bookie 1 asks for the client's certificate, bookie 2 has a certificate of another host and does not ask."""
    own, foreign = authority.identity("bookie", "127.0.0.1"), authority.identity("foreign", "127.0.0.7")
    settings = {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PKCS12",
        "tlsKeyStore": str(own.keystore),
        "tlsKeyStorePasswordPath": str(authority.password_file),
        "tlsTrustStoreType": "PKCS12",
        "tlsTrustStore": str(authority.truststore),
        "tlsTrustStorePasswordPath": str(authority.password_file),
        "tlsClientAuthentication": "true",
    }
    spec = StackSpec(zookeepers=1, bookies=2, bookie_settings=settings)
    with Stack(spec, tmp_path_factory.mktemp("stack"), sealed) as stack:
        stack.reconfigure(TWO, tlsKeyStore=str(foreign.keystore), tlsClientAuthentication="false")
        yield stack


@pytest.fixture
def make_cluster(stack: Stack) -> Iterator[MakeCluster]:
    """Clients of the stack with one's own TLS settings."""
    with ExitStack() as opened:

        def make(tls: Tls | None) -> Cluster:
            directory = LedgerDirectoryWriter(parse_store_url(f"{stack.zk_url}/ledgers"), Access())
            opened.enter_context(directory)
            bookies = Bookies(directory.bookies, access=BookieAccess(tls), read_timeout=3.0)
            return Cluster(directory, opened.enter_context(bookies))

        yield make


def test_ledgers_through_tls(make_cluster: MakeCluster, authority: Authority, client: Identity) -> None:
    """Many entries and large ones are written, read and recovered through TLS, and the bookie's space is read."""
    tls = Tls(str(authority.cert_file), str(client.cert_file), str(client.key_file))
    cluster = make_cluster(tls)
    for datas in (DATAS, LARGE):
        ledger = cluster.close(cluster.open([(0, (ONE,))], (1, 1)), datas)
        assert cluster.read(ledger) == ledger.bodies
    unclosed = cluster.fill(cluster.open([(0, (ONE,))], (1, 1)), DATAS)
    record = recover_ledger(cluster.directory, cluster.bookies, unclosed.ledger_id)
    assert record.metadata.last_entry == len(DATAS) - 1
    assert cluster.bookies.free_space(ONE).free > 0


def test_host_names(make_cluster: MakeCluster, authority: Authority, client: Identity) -> None:
    """A certificate that does not name the bookie's host is refused, unless host names are not to be looked at."""
    tls = Tls(str(authority.cert_file), str(client.cert_file), str(client.key_file))
    cluster = make_cluster(tls)
    with pytest.raises(StoreUnreachable, match=r"bookie-2 cannot be reached.*certificate verify failed"):
        cluster.fill(cluster.open([(0, (TWO,))], (1, 1)), [b"x"])
    trusting = make_cluster(tls._replace(verify_hostname=False))
    ledger = trusting.close(trusting.open([(0, (TWO,))], (1, 1)), [b"x"])
    assert trusting.read(ledger) == ledger.bodies


def test_a_client_without_certificate(make_cluster: MakeCluster, authority: Authority) -> None:
    """A bookie that asks for a certificate does not take a client without one, and another bookie does."""
    cluster = make_cluster(Tls(str(authority.cert_file), verify_hostname=False))
    ledger = cluster.close(cluster.open([(0, (TWO,))], (1, 1)), [b"x"])
    assert cluster.read(ledger) == ledger.bodies
    with pytest.raises(StoreUnreachable, match="bookie-1"):
        cluster.fill(cluster.open([(0, (ONE,))], (1, 1)), [b"x"])


def test_a_foreign_authority(make_cluster: MakeCluster, toolchain: Toolchain, tmp_path: Path) -> None:
    """A bookie whose certificate is not signed by a trusted authority gets no requests."""
    foreign = Authority(toolchain, tmp_path)
    cluster = make_cluster(Tls(str(foreign.cert_file)))
    with pytest.raises(StoreUnreachable, match=r"bookie-2 .*certificate verify failed"):
        cluster.fill(cluster.open([(0, (TWO,))], (1, 1)), [b"x"])


def test_a_bookie_without_tls(make_stack: MakeStack, authority: Authority) -> None:
    """A bookie that has no TLS is refused when TLS is wanted, and says so."""
    plain = make_stack(StackSpec(zookeepers=1, bookies=1))
    directory = LedgerDirectoryWriter(parse_store_url(f"{plain.zk_url}/ledgers"), Access())
    with directory, Bookies(directory.bookies, access=BookieAccess(Tls(str(authority.cert_file)))) as bookies:
        cluster = Cluster(directory, bookies)
        ledger = cluster.open([(0, (ONE,))], (1, 1))
        with pytest.raises(StoreUnsupported, match="bookie bookie-1 has no TLS"):
            cluster.fill(ledger, [b"x"])
