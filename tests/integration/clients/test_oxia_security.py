"""Oxias with TLS, client certificates and tokens: all clients get in, and errors name what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clients.errors import DestinationRefused, NoCredentials, StoreDenied, StoreUnreachable
from clients.oxia import OxiaReader, OxiaWriter, probe_target, speaks_v1
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import OxiaConnection
from clients.store import Record
from clients.stores import Access, StoreAccess, open_cas, revoke_permits, write_marks
from models.destinations import Destinations
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import StackSpec
from tests.support.clients.certificates import Authority, Identity
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.secure_oxia import HOST, SecureOxia
from tests.support.stacks import MakeStack


@pytest.fixture(scope="module")
def secure(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> SecureOxia:
    """Certificates, tokens and accesses."""
    return SecureOxia(toolchain, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def url(make_stack: MakeStack, secure: SecureOxia) -> StoreUrl:
    """An Oxia of two shards that takes TLS, certificates and tokens only."""
    return parse_store_url(make_stack(StackSpec(oxias=1, oxia_shards=2, oxia_security=secure.security)).oxia_url)


@pytest.fixture(scope="module")
def plain(make_stack: MakeStack) -> StoreUrl:
    """An Oxia without any of that."""
    return parse_store_url(make_stack(StackSpec(oxias=1)).oxia_url)


@pytest.fixture(scope="module")
def wrong(secure: SecureOxia, tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> dict[str, Identity]:
    """Certificates that are not to be trusted."""
    return {
        "expired": secure.authority.identity("expired", HOST, expired=True),
        "self-signed": secure.authority.self_signed("self-signed", HOST),
        "other authority": Authority(toolchain, tmp_path_factory.mktemp("foreign")).identity("foreign", HOST),
        "other host": secure.authority.identity("elsewhere", "127.0.0.7"),
    }


def ask(url: StoreUrl, access: OxiaAccess) -> None:
    """Read a record, which takes a call for the shards and one to a leader."""
    with OxiaReader(url, access=access, timeout=5) as reader:
        assert list(reader.read([b"/missing"])) == [None]


def test_all_clients_get_in(url: StoreUrl, secure: SecureOxia) -> None:
    """Readers, writers, compare-and-set, probes and removers all send certificate and token."""
    records = [Record(b"/tree/%d" % number, b"%d" % number, number, 1, 0, 0, 0) for number in range(2000)]
    with OxiaWriter(url, access=secure.access, batch_bytes=4096) as writer:
        for record in records:
            writer.put(record, over=None)
        writer.flush()
    with OxiaReader(url, access=secure.access) as reader:
        assert len(reader.children(b"/tree")) == len(records)
        assert sum(len(batch) for partition in reader.partitions(4) for batch in reader.scan(partition)) == len(records)
    access = Access(StoreAccess(oxia=secure.access))
    with open_cas(url, access) as store:
        store.create("/claims/one", b"1")
        node = store.get("/claims/one")
        assert node
        store.set("/claims/one", b"2", node.version)
        assert store.children("/claims") == ["one"]
    probe_target(url, access=secure.access)
    assert speaks_v1(url, access=secure.access)
    assert write_marks(url, access).keys() == {0, 1}
    revoke_permits(url, access)


@pytest.mark.parametrize("kind", ["none", "expired", "self-signed", "other authority"])
def test_wrong_certificates_of_ours(url: StoreUrl, secure: SecureOxia, wrong: dict[str, Identity], kind: str) -> None:
    """A certificate that the server refuses is an error that names the file, or the missing setting."""
    own = wrong.get(kind)
    said = f"refuses our certificate .*; {f'check {own.cert_file}' if own else 'set oxia_tls_certificate'}"
    with pytest.raises(StoreDenied, match=said):
        ask(url, secure.access_with(own))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("expired", "certificate has expired"),
        ("self-signed", "self-signed certificate"),
        ("other authority", "self-signed certificate in certificate chain|unable to get local issuer"),
        ("other host", r"not valid for '127\.0\.0\.1'"),
    ],
)
def test_wrong_certificates_of_servers(
    make_stack: MakeStack, secure: SecureOxia, wrong: dict[str, Identity], kind: str, said: str
) -> None:
    """A server with a wrong certificate gets no token."""
    security = secure.security.model_copy(update={"server": wrong[kind].pem_file})
    impostor = parse_store_url(make_stack(StackSpec(oxias=1, oxia_security=security)).oxia_url)
    with pytest.raises(StoreDenied, match=rf"certificate of Oxia at {impostor.hosts[0]} is refused .*{said}"):
        ask(impostor, secure.access)


def test_plain_text_to_a_port_with_tls(url: StoreUrl) -> None:
    """The error says that the port is for TLS, and which setting turns it on."""
    with pytest.raises(StoreUnreachable, match=r"takes connections with TLS only; set oxia_tls_ca"):
        ask(url, ANONYMOUS)


def test_tls_to_a_port_without(plain: StoreUrl, secure: SecureOxia) -> None:
    """The error says that the port has no TLS, and what to change."""
    with pytest.raises(StoreUnreachable, match=r"does not speak TLS on this port; .* unset oxia_tls_ca"):
        ask(plain, secure.access)


@pytest.mark.parametrize("kind", ["none", "garbage", "expired", "other audience", "other issuer"])
def test_wrong_tokens(url: StoreUrl, secure: SecureOxia, toolchain: Toolchain, tmp_path: Path, kind: str) -> None:
    """A token that the server refuses is an error that names the setting and not the token."""
    tokens: dict[str, Callable[[], str]] = {
        "none": lambda: "",
        "garbage": lambda: "not.a.token",
        "expired": lambda: secure.token(lasts=-60),
        "other audience": lambda: secure.token(audience="another"),
        "other issuer": lambda: SecureOxia(toolchain, tmp_path).token(),
    }
    token = tokens[kind]()
    cure = "check oxia_token" if token else "set oxia_token_file"
    with pytest.raises(StoreDenied, match=rf"\(UNAUTHENTICATED\); {cure}") as caught:
        ask(url, replace(secure.access, token=token))
    assert not token or token not in str(caught.value)


def test_renewed_files_are_used(url: StoreUrl, secure: SecureOxia, wrong: dict[str, Identity], tmp_path: Path) -> None:
    """The token is read for each call and certificates for each connection: an access outlives what it began with."""
    assert secure.access.tls
    assert secure.access.tls.cert_file
    assert secure.access.tls.key_file
    own, key, token = tmp_path / "own.pem", tmp_path / "own.key", tmp_path / "token"
    shutil.copy(wrong["expired"].cert_file, own)
    shutil.copy(wrong["expired"].key_file, key)
    token.write_text("old.old.old\n")
    tls = secure.access.tls._replace(cert_file=str(own), key_file=str(key))
    access = replace(secure.access, token="", token_file=str(token), tls=tls)
    with pytest.raises(StoreDenied, match="refuses our certificate"):
        ask(url, access)
    shutil.copy(secure.access.tls.cert_file, own)
    shutil.copy(secure.access.tls.key_file, key)
    with OxiaConnection(url, access=access) as connection:
        with pytest.raises(StoreDenied, match="check oxia_token_file"):
            _ = connection.shards
        token.write_text(f"{secure.access.token}\n")
        assert len(connection.shards) == 2
    token.unlink()
    with pytest.raises(NoCredentials, match=rf"oxia_token_file: {token} cannot be read"):
        ask(url, access)


def test_tokens_go_only_to_listed_hosts_with_tls(url: StoreUrl, plain: StoreUrl, secure: SecureOxia) -> None:
    """A host that the credentials do not list, or a link without TLS, gets nothing."""
    elsewhere = replace(secure.access, destinations=Destinations(hosts=(".example.com",)))
    with pytest.raises(DestinationRefused, match=r"nothing was sent to Oxia at .* not among the hosts"):
        ask(url, elsewhere)
    in_clear = replace(secure.access, tls=None)
    with pytest.raises(DestinationRefused, match="the link is not encrypted"):
        ask(plain, in_clear)
    ask(plain, replace(in_clear, destinations=in_clear.destinations._replace(allow_plain=True)))


def test_a_leader_elsewhere_gets_nothing(plain: StoreUrl, secure: SecureOxia, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer cannot lead to a host that the credentials do not list."""
    layout = pb.ShardAssignments()
    namespace = layout.namespaces["default"]
    namespace.shard_key_router = pb.XXHASH3
    shard = namespace.assignments.add(leader="stranger.example:6648")
    shard.int32_hash_range.max_hash_inclusive = (1 << 32) - 1

    def assignments(connection: OxiaConnection, service: str) -> pb.ShardAssignments:
        del connection, service
        return layout

    monkeypatch.setattr(OxiaConnection, "assignments", assignments)
    access = replace(secure.access, tls=None, destinations=LOOPBACK_PLAIN)
    with pytest.raises(DestinationRefused, match=r"nothing was sent to Oxia at stranger\.example:6648"):
        ask(plain, access)


def test_missing_files_of_ours_are_named(url: StoreUrl, secure: SecureOxia, tmp_path: Path) -> None:
    """Files for TLS that cannot be read are not taken for a server's fault."""
    assert secure.access.tls
    access = replace(secure.access, tls=secure.access.tls._replace(ca_file=str(tmp_path / "gone.pem")))
    with pytest.raises(NoCredentials, match=r"files of oxia_tls_… cannot be used .*gone\.pem"):
        ask(url, access)
