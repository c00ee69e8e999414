"""Addresses and files that mean harm, or that change at the wrong moment: nothing is sent, and errors are typed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import grpc
import httpx
import pytest
from pydantic import SecretStr

from activities.bookie_cluster.broker_control import BrokerController
from clients.bookkeeper.ledgers import Bookie
from clients.bookkeeper.pool import Bookies
from clients.errors import (
    DestinationRefused,
    NoCredentials,
    RetryableError,
    StoreProtocolError,
    StoreUnreachable,
)
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import OxiaAccess
from clients.oxia.connection import shards_of
from clients.oxia.link import open_channel
from clients.oxia.reader import OxiaReader
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.pulsar.admin.errors import AdminNoCredentials, AdminProtocolError
from clients.pulsar.admin.http import HttpSession
from clients.sasl import Login
from clients.tls import Tls
from clients.zookeeper.access import ZooKeeperAccess
from clients.zookeeper.connection import Connection
from clients.zookeeper.coordination import CoordinationReader
from models.bookie_cluster.input import BrokerControl, Direction
from models.destinations import Destinations
from models.settings import Settings
from models.store_url import parse_store_url
from tests.support.hostile import HostileServer
from tests.support.http_server import HttpServer
from tests.support.lifecycle.hook_receiver import SECRET as WEBHOOK_SECRET
from tests.support.lifecycle.hook_receiver import check_signature

SECRET = "secret-that-stays-at-home"
DOMAIN = Destinations((".prod.example",), allow_plain=True)
NO_HOSTS = ["b..prod.example", f"{'b' * 64}.prod.example"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:80\0.prod.example",
        "evil.example\0.prod.example",
        "dns://192.0.2.1/b.prod.example",
        "unix:/tmp/b.prod.example",
        "evil.example/.prod.example",
        "evil.example#.prod.example",
        "fe80::1%b.prod.example",
        "evil.example\n.prod.example",
        ".prod.example",
    ],
)
def test_only_a_name_is_a_host_of_a_listed_domain(host: str) -> None:
    """A text that a library reads as another address is not among the hosts, whatever it ends with."""
    assert DOMAIN.objection(host, encrypted=True, secret=True)
    assert not DOMAIN.objection("B1.prod.example.", encrypted=True, secret=True)


def test_a_leader_of_oxia_cannot_hide_its_host_by_a_zero_byte() -> None:
    """Here gRPC would connect to what comes before the byte, with the token, and without TLS."""
    received: list[bytes] = []

    def listen(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            received.append(link.recv(1 << 16))

    access = OxiaAccess(token=SECRET, destinations=DOMAIN)
    with HostileServer(listen) as server:
        forged = f"{server.address}\0.prod.example:6648"

        def call() -> None:
            with cast("Any", open_channel(forged, access, (("grpc.enable_http_proxy", 0),))) as channel:
                method = channel.unary_unary("/any/Method")
                with contextlib.suppress(grpc.RpcError):
                    method(b"", timeout=2, metadata=access.metadata())

        with pytest.raises(DestinationRefused):
            call()
    assert received == []


@pytest.mark.parametrize("leader", ["b", "b1.prod.example:port", "dns://192.0.2.1/b1.prod.example:1", "b:1\0.c:2"])
def test_a_leader_of_oxia_that_is_no_address(leader: str) -> None:
    """It is an answer that the protocol does not allow."""
    hashes = pb.Int32HashRange(min_hash_inclusive=0, max_hash_inclusive=0xFFFFFFFF)
    assignment = pb.ShardAssignment(shard=0, leader=leader, int32_hash_range=hashes)
    namespace = pb.NamespaceShardsAssignment(assignments=[assignment], shard_key_router=pb.XXHASH3)
    layout = pb.ShardAssignments(namespaces={"pulsar": namespace})
    with pytest.raises(StoreProtocolError, match="leader of shard 0"):
        shards_of(parse_store_url("oxia://127.0.0.1:1/pulsar"), layout)


def _bookie(host: str) -> None:
    with Bookies(lambda: {"b": Bookie("b", host, 3181, writable=True)}) as bookies:
        bookies.connection("b")


def _zookeeper(host: str) -> None:
    Connection(parse_store_url(f"zk:{host}:2181"), timeout=1)


def _kazoo(host: str) -> None:
    with CoordinationReader(parse_store_url(f"zk:{host}:2181"), timeout=1) as reader:
        reader.get("/")


def _oxia(host: str) -> None:
    OxiaReader(parse_store_url(f"oxia://{host}:6648"), timeout=1).children(b"/")


def _broker(host: str) -> None:
    with HttpSession(AdminAccess()) as session:
        session.request("GET", f"http://{host}:8080/x")


@pytest.mark.parametrize("host", NO_HOSTS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # kazoo's thread
@pytest.mark.parametrize("connect", [_bookie, _zookeeper, _kazoo, _oxia, _broker])
def test_a_name_that_no_host_can_have(connect: Callable[[str], None], host: str) -> None:
    """It cannot be reached, like any other name that does not resolve."""
    with pytest.raises(StoreUnreachable):
        connect(host)


class _Redirects(httpx.BaseTransport):
    def __init__(self, to: str) -> None:
        self.asked: list[bytes] = []
        self._to = to

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.raw_host)
        return httpx.Response(307 if len(self.asked) == 1 else 200, headers={"location": self._to})


def test_hosts_are_compared_as_they_are_looked_up() -> None:
    """A name with `xn--` can be listed as it is; one that does not decode is an answer that makes no sense."""
    destinations = Destinations(("b1.prod.example", "xn--bcher-kva.example"))
    access = AdminAccess(auth=Token(SecretStr(SECRET)), destinations=destinations)
    for to, reached in (("https://xn--a/", 1), ("https://xn--bcher-kva.example/", 2)):
        network = _Redirects(to)
        with contextlib.suppress(AdminProtocolError), HttpSession(access, transport=network) as session:
            session.request("GET", "https://b1.prod.example/x")
        assert len(network.asked) == reached


def _access(kind: str, file: Path) -> AdminAccess:
    destinations = Destinations(("b1.prod.example",))
    if kind == "token":
        return AdminAccess(auth=TokenFile(file), destinations=destinations)
    if kind == "oauth2":
        key = OAuth2(file, token_url="https://b1.prod.example/token")
        return AdminAccess(auth=ClientCredentials(key), destinations=destinations)
    return AdminAccess(tls=Tls(str(file)), destinations=destinations)


@pytest.mark.parametrize("kind", ["token", "oauth2", "tls"])
@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff\xfe", "é".encode(), b"a\nb"])
def test_a_file_that_is_renewed_is_worth_a_retry(tmp_path: Path, kind: str, content: bytes | None) -> None:
    """A final error would start a rollback, and a writer may be between two steps."""
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    access = _access(kind, file)
    with pytest.raises(AdminNoCredentials) as caught, HttpSession(access, transport=_Redirects("")) as session:
        session.request("GET", "https://b1.prod.example/x")
    assert isinstance(caught.value, RetryableError)


def test_an_empty_file_of_zookeeper_is_no_anonymous_session(tmp_path: Path) -> None:
    """Else nodes of ours would be open, and others not found."""
    file = tmp_path / "auth"
    file.write_text("\n")
    with pytest.raises(NoCredentials, match="is empty"):
        ZooKeeperAccess(auth_file=str(file)).auth_pairs()
    with pytest.raises(NoCredentials, match="is empty"):
        Login("zookeeper", "us", password_file=str(file)).current_password()


def test_an_issuer_that_names_no_address(tmp_path: Path) -> None:
    """It has answered wrongly, and gets no secret."""
    key = tmp_path / "key.json"
    key.write_text(f'{{"client_id": "me", "client_secret": "{SECRET}"}}')

    class Issuer(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            assert request.method == "GET"
            return httpx.Response(200, json={"token_endpoint": "https://[::1"})

    auth = ClientCredentials(OAuth2(key, issuer_url="https://issuer.example"), transport=Issuer())
    with (
        pytest.raises(AdminProtocolError, match="names no address"),
        HttpSession(AdminAccess(auth=auth, destinations=DOMAIN), transport=_Redirects("")) as session,
    ):
        session.request("GET", "https://b1.prod.example/x")


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_webhook": "https://[::1"},
        {"broker_webhook": "https://b..example/"},
    ],
)
def test_a_webhook_that_cannot_be_asked_is_no_order(settings: dict[str, Any]) -> None:
    """The step fails, for any reason: brokers do not count as stopped."""
    with pytest.raises(Exception, match="the webhook that stops brokers"):
        _controller(Settings(**settings)).ask("stop", "zk+hierarchical://z/ledgers", lambda: None)


def test_orders_of_the_webhook_are_signed() -> None:
    """An order has the signature of the secret in the settings, and its id is the order's key."""
    asked: list[tuple[Message, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

        def do_POST(self) -> None:
            asked.append((self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    with HttpServer(Handler) as server:
        settings = Settings.model_validate(
            {"broker_webhook": server.base_url, "broker_webhook_secret": WEBHOOK_SECRET, "allow_plain": True}
        )
        _controller(settings).ask("stop", "zk+hierarchical://z/ledgers", lambda: None)
    ((headers, body),) = asked
    check_signature(headers, body)
    assert headers["webhook-id"] == headers["idempotency-key"] == "r/1/stop"


def _controller(settings: Settings) -> BrokerController:
    context = Mock()
    context.pause = time.sleep
    task = SimpleNamespace(
        runtime=SimpleNamespace(settings=settings),
        input=SimpleNamespace(broker_control=BrokerControl.WEBHOOK, cluster="c"),
        context=context,
        attempt=SimpleNamespace(epoch=1),
        workflow_id="w",
        run_id="r",
    )
    return BrokerController(cast("Any", task), Direction.FORWARD)
