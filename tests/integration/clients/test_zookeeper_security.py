"""ZooKeepers with TLS, client certificates and logins: all clients get in, and errors name what is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.doctor.findings import Level
from cli.doctor.servers import server_findings
from cli.migrations import Servers
from clients.errors import NoCredentials, NoServer, StoreDenied, StoreError, StoreUnreachable
from clients.load import Sources
from clients.sasl import Login
from clients.store import Record
from clients.stores import Access, StoreAccess, open_cas
from clients.tls import Tls
from clients.zookeeper import ChangeFeed, Connection, Coordination, ZooKeeperReader, ZooKeeperWriter, four_letter
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.coordination import zookeeper_release
from clients.zookeeper.sessions import unsigned
from models.lifecycle.auto_throttle import AutoThrottle
from models.settings import Settings
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.certificates import Authority, Identity
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.secure_zookeeper import HOST, SecureZooKeeper
from tests.support.clients.zookeeper_records import contents, record, write
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

SERVER = "zookeeper-1"
LARGE = b"x" * 900_000


@pytest.fixture(scope="module")
def secure(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> SecureZooKeeper:
    """Certificates and accesses."""
    return SecureZooKeeper(toolchain, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack, secure: SecureZooKeeper) -> Stack:
    """Two ZooKeepers that take TLS and logins only."""
    return make_stack(StackSpec(zookeepers=1, second_zookeepers=1, zookeeper_security=secure.security))


@pytest.fixture(scope="module")
def plain(make_stack: MakeStack) -> StoreUrl:
    """A ZooKeeper without any of that."""
    return parse_store_url(make_stack(StackSpec(zookeepers=1)).zk_url)


@pytest.fixture
def url(stack: Stack) -> StoreUrl:
    """The first of both."""
    return parse_store_url(stack.zk_url)


@pytest.fixture(scope="module")
def stranger(
    secure: SecureZooKeeper, tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain
) -> dict[str, Identity]:
    """Certificates that are not to be trusted."""
    return {
        "expired": secure.authority.identity("expired", HOST, expired=True),
        "self-signed": secure.authority.self_signed("self-signed", HOST),
        "other authority": Authority(toolchain, tmp_path_factory.mktemp("foreign")).identity("foreign", HOST),
        "other host": secure.authority.identity("elsewhere", "127.0.0.7"),
    }


def bulk(url: StoreUrl, access: ZooKeeperAccess) -> None:
    """Ask with a connection of our own."""
    with Connection(url, access=access, timeout=5) as connection:
        connection.sync()


def kazoo(url: StoreUrl, access: ZooKeeperAccess) -> None:
    """Ask with kazoo."""
    with Coordination(url, access=access, timeout=5) as session:
        session.children("/")


def word(url: StoreUrl, access: ZooKeeperAccess) -> None:
    """Ask with a four letter word."""
    four_letter(url.hosts[0], "srvr", access=access, timeout=5)


CLIENTS = pytest.mark.parametrize("ask", [bulk, kazoo, word])
SESSIONS = pytest.mark.parametrize("ask", [bulk, kazoo])
Ask = Callable[[StoreUrl, ZooKeeperAccess], None]
# Kazoo 2.11 does not catch the error of a server that closes a session because its login failed.
DYING_THREAD = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def test_stores_are_copied_between_secure_zookeepers(stack: Stack, secure: SecureZooKeeper, url: StoreUrl) -> None:
    """A reader and a writer move thousands of records and large ones, and both stores are equal then."""
    target = parse_store_url(stack.second_zk_url)
    records = [record("/tree"), *(record(f"/tree/{number}", b"%d" % number, number % 3) for number in range(3000))]
    records += [record(f"/tree/large-{number}", LARGE) for number in range(5)]
    write(url, records, access=secure.access, keep_versions=True)
    with (
        ZooKeeperReader(url, access=secure.access) as source,
        ZooKeeperWriter(target, access=secure.access, keep_versions=True) as writer,
    ):
        for partition in source.partitions(4):
            for batch in source.scan(partition):
                for read in batch:
                    assert isinstance(read, Record)
                    writer.put(read, over=None)
        writer.flush()
    copied = contents(target, secure.access)
    assert copied == contents(url, secure.access)
    assert len(copied) == len(records)


def test_a_feed_reports_changes_while_it_sends(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """One thread receives events, another one pings, and a third one asks for confirmation: nothing is lost."""
    with ChangeFeed(url, access=secure.access, session_timeout=6) as feed:
        feed.start()
        seen: set[bytes] = set()
        names = [f"/feed/{number:05d}" for number in range(5000)]
        for start in range(0, len(names), 500):
            write(url, [record(name, b"v" * 200) for name in names[start : start + 500]], access=secure.access)
            seen |= feed.drain(10)
        assert feed.gap is None
        assert seen == {*(name.encode() for name in names), b"/feed"}


def test_answers_that_come_together_are_read_together(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """Each read is two requests, whose answers may come in one record of TLS: none waits for kazoo's next ping."""
    with Coordination(url, access=secure.access) as session:
        session.create("/together", b"value")
        begun = time.monotonic()
        for _ in range(200):
            assert session.get("/together")
        assert time.monotonic() - begun < 5


def test_claims_and_words(url: StoreUrl, secure: SecureZooKeeper) -> None:
    """Compare-and-set works over TLS, and so do four letter words."""
    with open_cas(url, Access(StoreAccess(secure.access))) as store:
        store.create("/claims/one", b"1")
        node = store.get("/claims/one")
        assert node
        store.set("/claims/one", b"2", node.version)
        store.delete("/claims/one", -1)
    assert zookeeper_release(url.hosts[0], access=secure.access).startswith("3.")
    with Coordination(url, access=secure.access) as session:
        connections = four_letter(url.hosts[0], "cons", access=secure.access) or ""
        assert f"sid=0x{unsigned(session.session_id):x}" in connections
    with Sources(AutoThrottle(zookeepers=url.hosts), admin=Tls(), zookeeper=secure.access) as sources:
        assert sources.all[0].read()


def test_a_session_logs_in_again(stack: Stack, url: StoreUrl, secure: SecureZooKeeper) -> None:
    """A session that lost its server shakes hands and logs in again, and keeps what it holds."""
    with Coordination(url, access=secure.access, timeout=20) as session:
        session.create("/held", b"", ephemeral=True)
        stack[SERVER].restart()
        wait_for("the session to be there again", lambda: _reads(session, "/held"), 30)
        stat = session.exists("/held")
        assert stat
        assert stat.ephemeral_owner == session.session_id


def _reads(session: Coordination, path: str) -> bool:
    try:
        return session.exists(path) is not None
    except StoreUnreachable:
        return False


def test_doctor_says_how_a_secure_zookeeper_is_reached(url: StoreUrl, plain: StoreUrl, secure: SecureZooKeeper) -> None:
    """The check of a store shakes hands and logs in: it passes, or names the setting."""
    tls, login = secure.access.tls, secure.access.login
    assert tls
    assert login
    right = {
        "hosts": "127.0.0.1",
        "zookeeper_sasl_username": login.username,
        "zookeeper_sasl_password": login.password,
        "zookeeper_tls_ca": tls.ca_file,
        "zookeeper_tls_certificate": tls.cert_file,
        "zookeeper_tls_key": tls.key_file,
    }

    def check(store: StoreUrl, **changes: object) -> tuple[Level, str]:
        servers = Servers("secure", store, {"store": store})
        finding = next(iter(server_findings(servers, Settings.model_validate({**right, **changes}))))
        return finding.level, finding.detail

    level, text = check(url)
    assert (level, "with TLS" in text) == (Level.OK, True), text
    level, text = check(url, zookeeper_sasl_password="wrong")
    assert (level, "refuses the login" in text) == (Level.FAILED, True), text
    level, text = check(url, zookeeper_tls_certificate="", zookeeper_tls_key="")
    assert (level, "set zookeeper_tls_certificate" in text) == (Level.FAILED, True), text
    level, text = check(plain)
    assert (level, "does not speak TLS on this port" in text) == (Level.FAILED, True), text


@DYING_THREAD
@SESSIONS
@pytest.mark.parametrize(
    ("login", "said"),
    [
        (Login("zookeeper", "migrate", "wrong"), "refuses the login of 'migrate'.*check zookeeper_sasl_username"),
        (Login("zookeeper", "stranger", "secret"), "refuses the login of 'stranger'"),
        (None, "takes only sessions with a login"),
    ],
    ids=["password", "user", "none"],
)
def test_wrong_logins(url: StoreUrl, secure: SecureZooKeeper, ask: Ask, login: Login | None, said: str) -> None:
    """A login that the server refuses, or none, is an error that names the setting and no password."""
    with pytest.raises(StoreDenied, match=said) as caught:
        ask(url, replace(secure.access, login=login))
    assert "wrong" not in str(caught.value)


@CLIENTS
@pytest.mark.parametrize("kind", ["none", "expired", "self-signed", "other authority"])
def test_wrong_certificates_of_ours(
    url: StoreUrl, secure: SecureZooKeeper, stranger: dict[str, Identity], ask: Ask, kind: str
) -> None:
    """A certificate that the server refuses is an error that names the file, or the missing setting."""
    own = stranger.get(kind)
    said = f"refuses our certificate .*; {f'check {own.cert_file}' if own else 'set zookeeper_tls_certificate'}"
    with pytest.raises(StoreDenied, match=said):
        ask(url, secure.access_with(own))


@pytest.fixture
def impostor(stack: Stack, secure: SecureZooKeeper) -> Iterator[Callable[[Identity], None]]:
    """Lets the server have another certificate."""

    def replace_certificate(identity: Identity) -> None:
        stack.reconfigure(SERVER, **{"ssl.keyStore.location": str(identity.pem_file)})

    yield replace_certificate
    stack.reconfigure(SERVER, **{"ssl.keyStore.location": str(secure.security.server)})


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("expired", "certificate has expired", marks=pytest.mark.exhaustive),
        pytest.param("self-signed", "self-signed certificate", marks=pytest.mark.exhaustive),
        ("other authority", "self-signed certificate in certificate chain|unable to get local issuer"),
        ("other host", r"not valid for '127\.0\.0\.1'.*zookeeper_tls_verify_hostname"),
    ],
)
def test_wrong_certificates_of_servers(  # noqa: PLR0917 - fixtures
    url: StoreUrl,
    secure: SecureZooKeeper,
    stranger: dict[str, Identity],
    impostor: Callable[[Identity], None],
    kind: str,
    said: str,
) -> None:
    """A server with a wrong certificate gets nothing from any client; only the host name's check can be turned off."""
    impostor(stranger[kind])
    for ask in (bulk, kazoo, word):
        with pytest.raises(StoreDenied, match=f"certificate is refused .*{said}"):
            ask(url, secure.access)
    assert secure.access.tls
    careless = replace(secure.access, tls=secure.access.tls._replace(verify_hostname=False))
    for ask in (bulk, kazoo, word):
        if kind == "other host":
            ask(url, careless)
        else:
            with pytest.raises(StoreDenied, match="certificate is refused"):
                ask(url, careless)


@CLIENTS
def test_plain_text_to_a_port_with_tls(url: StoreUrl, ask: Ask) -> None:
    """The error says that the port is for TLS, and which setting turns it on."""
    with pytest.raises(StoreUnreachable, match="it speaks TLS only; set zookeeper_tls_ca") as caught:
        ask(url, ANONYMOUS)
    assert isinstance(caught.value, NoServer) == (ask is not word)


@CLIENTS
def test_tls_to_a_port_without(plain: StoreUrl, secure: SecureZooKeeper, ask: Ask) -> None:
    """The error says that the port has no TLS, and what to change."""
    with pytest.raises(StoreUnreachable, match="does not speak TLS on this port; give its secureClientPort") as caught:
        ask(plain, secure.access)
    assert isinstance(caught.value, NoServer) == (ask is not word)


@SESSIONS
def test_a_server_without_logins(plain: StoreUrl, secure: SecureZooKeeper, ask: Ask) -> None:
    """A server that offers no login is an error, and not a session without one."""
    with pytest.raises(StoreDenied, match=r"offers no login by SASL DIGEST-MD5.*fips-mode"):
        ask(plain, replace(secure.access, tls=None, destinations=LOOPBACK_PLAIN))


@SESSIONS
def test_renewed_files_are_used(
    url: StoreUrl, secure: SecureZooKeeper, stranger: dict[str, Identity], tmp_path: Path, ask: Ask
) -> None:
    """Certificate, key and password are read for each connection: an access outlives what it was made with."""
    assert secure.access.tls
    expired = stranger["expired"]
    own, key, password = tmp_path / "own.pem", tmp_path / "own.key", tmp_path / "password"
    shutil.copy(expired.cert_file, own)
    shutil.copy(expired.key_file, key)
    password.write_text("old\n")
    tls = secure.access.tls._replace(cert_file=str(own), key_file=str(key))
    access = replace(secure.access, tls=tls, login=Login("zookeeper", "migrate", password_file=str(password)))
    with pytest.raises(StoreDenied, match="refuses our certificate"):
        ask(url, access)
    assert secure.access.tls.cert_file
    assert secure.access.tls.key_file
    shutil.copy(secure.access.tls.cert_file, own)
    shutil.copy(secure.access.tls.key_file, key)
    with pytest.raises(StoreDenied, match="refuses the login"):
        ask(url, access)
    assert secure.access.login
    password.write_text(f"{secure.access.login.password}\n")
    ask(url, access)
    password.unlink()
    with pytest.raises(NoCredentials, match=f"zookeeper_sasl_password_file: {password} cannot be read"):
        ask(url, access)


def test_missing_files_of_ours_are_named(url: StoreUrl, secure: SecureZooKeeper, tmp_path: Path) -> None:
    """Files for TLS that cannot be read are not taken for a server's fault."""
    assert secure.access.tls
    access = replace(secure.access, tls=secure.access.tls._replace(ca_file=str(tmp_path / "gone.pem")))
    for ask in (bulk, kazoo, word):
        with pytest.raises(StoreError, match=r"files of zookeeper_tls_… cannot be used .*gone\.pem") as caught:
            ask(url, access)
        assert isinstance(caught.value, NoCredentials)
