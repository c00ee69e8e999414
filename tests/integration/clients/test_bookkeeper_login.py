"""Bookies that take only clients with a login (SASL DIGEST-MD5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clients.bookie_access import BookieAccess
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.bookkeeper.pool import Bookies
from clients.errors import DestinationRefused, NoCredentials, StoreError, StoreUnreachable, StoreUnsupported
from clients.sasl import Login
from clients.stores import Access
from models.destinations import Destinations
from models.store_url import parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.bookies import Cluster, recover_ledger
from tests.support.clients.destinations import LOOPBACK_PLAIN

ONE, TWO = "bookie-1", "bookie-2"
DATAS = [bytes([number % 251]) * (number * 37 % 5000) for number in range(2000)]
LOGIN = Login("bookie", "migrate", "only-for-tests")
MakeCluster = Callable[..., Cluster]
# Bookies do not answer wrong logins.
UNANSWERED = 3.0


@pytest.fixture(scope="module")
def stack(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Bookie 1 asks for a login, bookie 2 does not."""
    jaas = tmp_path_factory.mktemp("login") / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Bookie {{ {module} required user_{LOGIN.username}="{LOGIN.password}"; }};\n')
    settings = {
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
        "saslJaasClientAllowedIds": ".*",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
        spec = StackSpec(zookeepers=1, bookies=2, bookie_settings=settings)
        with Stack(spec, tmp_path_factory.mktemp("stack"), toolchain) as stack:
            stack.reconfigure(TWO, bookieAuthProviderFactoryClass="")
            yield stack


@pytest.fixture
def make_cluster(stack: Stack) -> Iterator[MakeCluster]:
    """Clients of the stack with one's own access."""
    with ExitStack() as opened:

        def make(access: BookieAccess, read_timeout: float = 30.0) -> Cluster:
            directory = LedgerDirectoryWriter(parse_store_url(f"{stack.zk_url}/ledgers"), Access())
            opened.enter_context(directory)
            bookies = Bookies(directory.bookies, access=access, read_timeout=read_timeout)
            return Cluster(directory, opened.enter_context(bookies))

        yield make


def with_login(login: Login | None) -> BookieAccess:
    """Return an access with a login, for plain links."""
    return BookieAccess(destinations=LOOPBACK_PLAIN, login=login)


def test_ledgers_after_a_login(make_cluster: MakeCluster) -> None:
    """Many entries are written, read and recovered, and the bookie's space is read."""
    cluster = make_cluster(with_login(LOGIN))
    ledger = cluster.close(cluster.open([(0, (ONE,))], (1, 1)), DATAS)
    assert cluster.read(ledger) == ledger.bodies
    unclosed = cluster.fill(cluster.open([(0, (ONE,))], (1, 1)), DATAS)
    record = recover_ledger(cluster.directory, cluster.bookies, unclosed.ledger_id)
    assert record.metadata.last_entry == len(DATAS) - 1
    assert cluster.bookies.free_space(ONE).free > 0


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (Login("bookie", "migrate", "wrong-password"), "to the login of 'migrate'; check bookie_sasl_username"),
        (Login("bookie", "stranger", "only-for-tests"), "to the login of 'stranger'"),
        (None, "bookie_sasl_username"),
    ],
    ids=["password", "user", "none"],
)
def test_wrong_logins(make_cluster: MakeCluster, login: Login | None, said: str) -> None:
    """A login that the bookie refuses, or none, is an error that names the setting and no password."""
    cluster = make_cluster(with_login(login), UNANSWERED)
    with pytest.raises(StoreError, match=said) as caught:
        cluster.bookies.free_space(ONE)
    assert "wrong-password" not in str(caught.value)
    with pytest.raises(StoreError, match=said) as caught:
        cluster.fill(cluster.open([(0, (ONE,))], (1, 1)), [b"x"])
    assert "wrong-password" not in str(caught.value)


def test_a_bookie_without_logins(make_cluster: MakeCluster) -> None:
    """A bookie that takes no logins says so."""
    with pytest.raises(StoreUnsupported, match="bookie bookie-2 takes no logins by SASL"):
        make_cluster(with_login(LOGIN)).bookies.free_space(TWO)


def test_a_login_stays_at_its_hosts(make_cluster: MakeCluster) -> None:
    """A login needs a host of the list, and TLS unless plain links are allowed."""
    for host, said in (("elsewhere", "not among the hosts"), ("127.0.0.1", "the link is not encrypted")):
        with pytest.raises(DestinationRefused, match=said):
            make_cluster(BookieAccess(destinations=Destinations((host,)), login=LOGIN)).bookies.free_space(ONE)


def test_the_password_is_read_for_each_connection(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """A renewed password counts from the next connection on, and a missing file is named."""
    (password := tmp_path / "password").write_text("wrong-password\n")
    access = with_login(Login("bookie", LOGIN.username, password_file=str(password)))
    bookies = make_cluster(access, UNANSWERED).bookies
    with pytest.raises(StoreUnreachable, match="to the login of 'migrate'"):
        bookies.free_space(ONE)
    password.write_text(f"{LOGIN.password}\n")
    assert bookies.free_space(ONE).free > 0
    password.unlink()
    with pytest.raises(NoCredentials, match=f"bookie_sasl_password_file: {password} cannot be read"):
        bookies.free_space(ONE)
