"""Credentials for ZooKeeper, and kazoo's connections as ours."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from clients.bookie_access import BookieAccess
from clients.bookkeeper.ledgers import Bookie
from clients.bookkeeper.pool import Bookies
from clients.errors import DestinationRefused, NoCredentials
from clients.sasl import Login
from clients.stores import Access
from clients.zookeeper.access import ZooKeeperAccess
from clients.zookeeper.connection import Connection
from clients.zookeeper.coordination import CoordinationReader
from clients.zookeeper.kazoo_handler import Handler
from models.destinations import Destinations
from models.settings import Settings
from models.store_url import parse_store_url

SECRET = "never-to-be-seen"
FIELDS = {
    "zookeeper_auth": (f"digest:us:{SECRET}",),
    "zookeeper_sasl_username": "us",
    "zookeeper_sasl_password": SECRET,
}
OWN = Path(__file__).parent.parent / "cli" / "tls" / "own"


def test_access_travels_and_does_not_show_secrets() -> None:
    """Executors get it as it is, and its text has no secret."""
    access = Access.from_settings(Settings.model_validate(FIELDS))
    assert pickle.loads(pickle.dumps(access)) == access
    assert SECRET not in repr(access)
    assert access.common.zookeeper.login
    assert access.common.zookeeper.login.current_password() == SECRET
    assert access.common.zookeeper.auth_pairs() == (("digest", f"us:{SECRET}".encode()),)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"zookeeper_sasl_username": "us"}, "go together"),
        ({"zookeeper_sasl_password": SECRET}, "go together"),
        (
            {"zookeeper_sasl_username": "us", "zookeeper_sasl_password": SECRET, "zookeeper_sasl_password_file": "f"},
            "go together",
        ),
        ({"zookeeper_tls_certificate": "own.pem"}, "zookeeper_tls_certificate needs zookeeper_tls_ca"),
        ({"zookeeper_tls_ca": "ca.pem", "zookeeper_tls_key": "own.key"}, "zookeeper_tls_key needs"),
    ],
)
def test_half_of_a_setting_is_refused(fields: dict[str, str], said: str) -> None:
    """A worker with half of a login, or half of a certificate, does not start; also with named credentials."""
    for settings in (fields, {"credentials": {"green": fields}}):
        with pytest.raises(ValidationError, match=said) as caught:
            Settings.model_validate(settings)
        assert SECRET not in str(caught.value)


def test_files_are_read_for_each_connection(tmp_path: Path) -> None:
    """The current text of a file counts, and a missing file is named."""
    auth, password = tmp_path / "auth", tmp_path / "password"
    auth.write_text("digest:a:b\n")
    password.write_text(f"{SECRET}\n")
    login = Login("zookeeper", "us", password_file=str(password))
    access = ZooKeeperAccess(auth_file=str(auth), login=login)
    assert access.auth_pairs() == (("digest", b"a:b"),)
    assert login.current_password() == SECRET
    auth.write_text("digest:c:d\n\ndigest:e:f\n")
    assert access.auth_pairs() == (("digest", b"c:d"), ("digest", b"e:f"))
    auth.write_text(SECRET)
    with pytest.raises(NoCredentials, match="has no scheme") as caught:
        access.auth_pairs()
    assert SECRET not in str(caught.value)
    password.unlink()
    with pytest.raises(NoCredentials, match=f"zookeeper_sasl_password_file: {password} cannot be read"):
        login.current_password()


@pytest.fixture
def linked() -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Both ends of a connection with TLS."""
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    serving.load_cert_chain(f"{OWN}.pem", f"{OWN}.key")
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    server_end, client_end = socket.socketpair()
    ends: list[ssl.SSLSocket] = []
    server = threading.Thread(target=lambda: ends.append(serving.wrap_socket(server_end, server_side=True)))
    server.start()
    client = asking.wrap_socket(client_end)
    server.join()
    yield ends[0], client
    ends[0].close()
    client.close()


def test_kazoo_sees_what_tls_holds_decrypted(linked: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """Two answers in one record of TLS: the second one is not left unread until more arrives."""
    server, client = linked
    server.sendall(b"firstsecond")
    assert client.recv(5) == b"first"
    handler = Handler(ZooKeeperAccess())
    assert handler.select([client], [], [], 5)[0] == [client]
    assert client.recv(6) == b"second"
    assert handler.select([client], [], [], 0)[0] == []


@pytest.mark.parametrize("session", [Connection, CoordinationReader])
def test_nothing_is_sent_to_hosts_that_are_not_listed(session: type[Connection | CoordinationReader]) -> None:
    """Both clients refuse hosts that are not listed, and plain links for a credential, before they connect."""
    credential = (("digest", b"a:b"),)
    cases = {
        "not among the hosts": Destinations(("elsewhere.example.com",), allow_plain=True),
        "the link is not encrypted": Destinations(("127.0.0.1",)),
        "no hosts are listed": Destinations(),
    }
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = parse_store_url(f"zk:127.0.0.1:{server.getsockname()[1]}")
        for reason, destinations in cases.items():
            access = ZooKeeperAccess(auth=credential, destinations=destinations)
            with pytest.raises(DestinationRefused, match=reason), session(url, access=access):
                pass
        with pytest.raises(BlockingIOError):
            server.accept()


def test_bookies_of_other_hosts_are_not_asked() -> None:
    """A registration in the metadata store leads to no host that the settings do not list."""
    forged = Bookie("bookie-1", "evil.example.com", 3181, writable=True)
    access = BookieAccess(destinations=Destinations((".example.org",)))
    with (
        Bookies(lambda: {forged.bookie_id: forged}, access=access) as bookies,
        pytest.raises(DestinationRefused, match=r"evil\.example\.com is not among the hosts"),
    ):
        bookies.free_space(forged.bookie_id)
