"""Pulsar's binary protocol: bytes of a real broker, and a double of one for what real ones rarely do."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from clients.errors import (
    DestinationRefused,
    StoreConflict,
    StoreContention,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.connection import BrokerConnection, refused
from clients.pulsar.wire.frames import parse_message
from clients.pulsar.wire.lookup import greet
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.producer import RawProducer
from clients.tls import Tls
from models.destinations import Destinations
from pulsar_wire.access import addresses
from pulsar_wire.errors import ProtocolViolation, ServerError
from pulsar_wire.frames import SIZE, Command, decode, encode
from pulsar_wire.pulsar_api_pb2 import (
    CommandAuthChallenge,
    CommandAuthResponse,
    CommandCloseProducer,
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPing,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
)
from tests.support.waiting import timeout_for

STORED = bytes.fromhex("0e01c093f2070000001b0a036170701000188ca8c2b2a03422060a016e12013132016b604d68656c6c6f")
RECEIVED = bytes.fromhex("0000001708094a130802120f0814100018ffffffffffffffffff01") + STORED
RECEIPT = bytes.fromhex("0000001908073a15080210001a040814100120ffffffffffffffffff01")
TOPIC = TopicName.parse("public/default/t")
USUAL = WireAccess()
SHORT = WireAccess(timeout=0.5)
"""Of clients whose broker does not answer."""
LOCAL = Destinations(("127.0.0.1",), allow_plain=True)

_URLS: list[str] = []
"""The double's address, which it gives as that of the topic's owner."""

Answer = Callable[[Command], list[Command]]


def test_stored_message() -> None:
    """A stored entry is taken as it is; what the broker noted in front of it is left out."""
    message = parse_message(STORED)
    assert (message.data, message.messages) == (STORED, 1)
    assert (message.metadata.producer_name, message.metadata.sequence_id) == ("app", 0)
    assert (message.is_chunk, message.is_marker, message.in_transaction) == (False, False, False)
    assert parse_message(b"\x0e\x02\x00\x00\x00\x03abc" + STORED).data == STORED
    # Clients before checksums.
    assert parse_message(STORED[6:]).data == STORED[6:]


@pytest.mark.parametrize("damaged", [STORED[:-1] + b"x", STORED[:12], STORED[6:20], b"", b"\x00\x00\x00\x00"])
def test_damaged_message(damaged: bytes) -> None:
    """An entry with another checksum, or a truncated one, is not a message."""
    with pytest.raises(StoreProtocolError):
        parse_message(damaged)


def test_frames_of_a_broker() -> None:
    """A broker's frames are read, and a message is sent in the bytes that it came in."""
    received, data = decode(RECEIVED)
    assert isinstance(received, CommandMessage)
    assert (received.message_id.ledgerId, received.message_id.entryId, data) == (20, 0, STORED)
    receipt, nothing = decode(RECEIPT)
    assert isinstance(receipt, CommandSendReceipt)
    assert (receipt.message_id.entryId, nothing) == (1, b"")
    sent = encode(CommandSend(producer_id=2, sequence_id=0, num_messages=1), STORED)
    assert sent == bytes.fromhex("000000380000000a08063206080210001801") + STORED
    with pytest.raises(ProtocolViolation):
        decode(b"\x00\x00\x00\x02\xff\xff")


def test_addresses() -> None:
    """Addresses as Pulsar's clients take them."""
    assert [str(address) for address in addresses("pulsar://a:1,b")] == ["pulsar://a:1", "pulsar://b:6650"]
    assert [str(address) for address in addresses("pulsar+ssl://[::1]:7")] == ["pulsar+ssl://[::1]:7"]
    for wrong in ("http://a:1", "a:1", "pulsar://", "pulsar://a:1,"):
        with pytest.raises(ValueError, match="invalid service URL"):
            addresses(wrong)


def test_credentials() -> None:
    """The token of the admin interface is sent, and is never shown."""
    access = WireAccess.of(AdminAccess(auth=Token(SecretStr("secret"))))
    assert access.connecting(secure=False).credentials() == ("token", b"secret")
    assert "secret" not in repr(access)
    assert WireAccess.of(AdminAccess()).connecting(secure=False).credentials() is None
    certified = WireAccess(tls=Tls(cert_file="ours.pem"))
    assert certified.connecting(secure=False).credentials() == ("tls", b"")
    with pytest.raises(StoreDenied, match="only tokens"):
        WireAccess.of(AdminAccess(auth=httpx.BasicAuth("user", "password")))


def test_executors_get_names_of_files(tmp_path: Path) -> None:
    """A pickled access has no token, also after one was read or issued; the executor reads the file itself."""
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text("first")
    key.write_text('{"client_id": "worker", "client_secret": "of the key"}')
    access = WireAccess.of(AdminAccess(auth=TokenFile(token)))
    travelling = pickle.dumps(access)
    assert b"first" not in travelling
    token.write_text("second-which-is-longer")
    arrived = pickle.loads(travelling)
    assert (access.token(), arrived.token()) == ("second-which-is-longer",) * 2
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.content.decode())
        return httpx.Response(200, json={"access_token": "granted"})

    options = OAuth2(key, token_url="https://127.0.0.1/token")
    access = WireAccess.of(AdminAccess(auth=ClientCredentials(options, transport=httpx.MockTransport(answer))))
    assert access.token() == "granted"
    assert len(asked) == 1
    travelling = pickle.dumps(access)
    assert not [secret for secret in (b"granted", b"of the key") if secret in travelling]
    first, second = pickle.loads(travelling), pickle.loads(travelling)
    assert first.auth is second.auth


def test_a_token_stays_with_its_hosts() -> None:
    """No connection is opened to a host that is not listed, or without TLS: a lookup may name any address."""
    access = WireAccess(auth=Token(SecretStr("secret")), destinations=LOCAL._replace(allow_plain=False))
    with pytest.raises(DestinationRefused, match="evil is not among the hosts"):
        BrokerConnection(addresses("pulsar+ssl://evil:6651")[0], access)
    with pytest.raises(DestinationRefused, match="the link is not encrypted"):
        BrokerConnection(addresses("pulsar://127.0.0.1:6650")[0], access)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ServerError.AUTHORIZATION, StoreDenied),
        (ServerError.PRODUCER_FENCED, StoreContention),
        (ServerError.TERMINATED, StoreConflict),
        (ServerError.INCOMPATIBLE_SCHEMA, StoreUnsupported),
        (ServerError.NOT_READY, StoreUnreachable),
        (99, StoreUnreachable),
    ],
)
def test_refusals(code: int, kind: type[StoreError]) -> None:
    """Each refusal of a broker has the type that says whether another attempt helps."""
    assert type(refused("sending", code, "because\nof that", "pulsar://a:1")) is kind


def test_only_producer() -> None:
    """Sending continues after the last number that the broker knows; keep-alives are answered in between."""
    stored: list[EntryPosition] = []

    def answer(asked: Command) -> list[Command]:
        return [CommandPing(), *_greeting(asked, last=41), *_receipt(asked, 42, EntryPosition(7, 3))]

    with _broker(answer) as url, _producer(url, stored) as producer:
        producer.send(parse_message(STORED))
        producer.flush()
    assert stored == [EntryPosition(7, 3)]


def test_the_epoch_of_a_topic_stays_low() -> None:
    """A topic whose epoch an application has raised is opened without an epoch."""
    epochs: list[int | None] = []

    def answer(asked: Command) -> list[Command]:
        if isinstance(asked, CommandProducer):
            epochs.append(asked.topic_epoch if asked.HasField("topic_epoch") else None)
            if epochs == [0]:
                fenced = ServerError.PRODUCER_FENCED
                return [CommandError(request_id=asked.request_id, error=fenced, message="the epoch has moved")]
        return _greeting(asked)

    with _broker(answer) as url:
        RawProducer(url, TOPIC, USUAL, name="copy", notes={}, on_stored=lambda _: None, keeps_epoch=True).close()
    assert epochs == [0, None]


def test_a_receipt_that_arrives_during_a_freeze() -> None:
    """A receipt that arrives while the process is frozen for longer than the timeout counts."""
    stored: list[EntryPosition] = []

    def answer(asked: Command) -> list[Command]:
        return [*_greeting(asked), *_receipt(asked, 0, EntryPosition(7, 3))]

    with _broker(answer) as url, _producer(url, stored) as producer:
        connection = producer._connection  # pyright: ignore[reportPrivateUsage] - no test can freeze itself
        poll = connection.wire.poll

        def freeze(timeout: float) -> None:
            # Without a limit it only sends.
            if not timeout:
                poll(timeout)
                return
            connection.wire.poll = poll
            time.sleep(1.5)

        producer.send(parse_message(STORED))
        connection.access = WireAccess(timeout=1).connecting(secure=False)
        connection.wire.poll = freeze
        producer.flush()
    assert stored == [EntryPosition(7, 3)]


def _producer(url: str, stored: list[EntryPosition], access: WireAccess = USUAL) -> RawProducer:
    return RawProducer(url, TOPIC, access, name="copy", notes={}, on_stored=stored.append)


def _greeting(asked: Command, last: int = -1) -> list[Command]:
    if isinstance(asked, CommandConnect):
        return [CommandConnected(server_version="double", max_message_size=1_000)]
    if isinstance(asked, CommandLookupTopic):
        response = CommandLookupTopicResponse(
            request_id=asked.request_id,
            response=CommandLookupTopicResponse.Connect,
            brokerServiceUrl=_URLS[-1],
        )
        return [response]
    if isinstance(asked, CommandProducer):
        number = asked.request_id
        waits = CommandProducerSuccess(request_id=number, producer_name="copy", producer_ready=False)
        ready = CommandProducerSuccess(request_id=number, producer_name="copy", last_sequence_id=last)
        return [waits, ready]
    return [CommandSuccess(request_id=asked.request_id)] if isinstance(asked, CommandCloseProducer) else []


def _receipt(asked: Command, sequence: int, place: EntryPosition) -> list[Command]:
    if not isinstance(asked, CommandSend):
        return []
    where = MessageIdData(ledgerId=place.ledger_id, entryId=place.entry_id)
    receipt = CommandSendReceipt(producer_id=asked.producer_id, sequence_id=sequence, message_id=where)
    return [receipt]


def _fenced(asked: Command) -> list[Command]:
    if not isinstance(asked, CommandSend):
        return []
    return [CommandCloseProducer(producer_id=asked.producer_id, request_id=1)]


def _unencrypted(asked: Command) -> list[Command]:
    if not isinstance(asked, CommandSend):
        return []
    error, why = ServerError.METADATA, "Messages must be encrypted"
    refusal = CommandSendError(producer_id=asked.producer_id, sequence_id=0, error=error, message=why)
    return [refusal]


_NOT_STORED: list[tuple[Answer, type[StoreError]]] = [
    (lambda asked: _receipt(asked, 0, EntryPosition((1 << 64) - 1, (1 << 64) - 1)), StoreConflict),
    (lambda asked: _receipt(asked, 5, EntryPosition(7, 3)), StoreContention),
    (_fenced, StoreContention),
    (_unencrypted, StoreUnsupported),
    (lambda asked: [], StoreUnreachable),
]


@pytest.mark.parametrize(("answer", "kind"), _NOT_STORED)
def test_messages_that_are_not_stored(answer: Answer, kind: type[StoreError]) -> None:
    """Dropped as a duplicate, answered out of turn, fenced, refused, or not answered at all: none counts as stored."""
    stored: list[EntryPosition] = []
    with _broker(lambda asked: [*_greeting(asked), *answer(asked)]) as url, _producer(url, stored) as producer:
        if kind is StoreUnreachable:
            short = SHORT.connecting(secure=False)
            producer._connection.access = short  # pyright: ignore[reportPrivateUsage] - it was opened in time
        producer.send(parse_message(STORED))
        with pytest.raises(kind):
            producer.flush()
    assert stored == []


def test_token() -> None:
    """The token goes with the greeting, and again when the broker asks for a fresh one."""
    sent: list[bytes] = []

    def answer(asked: Command) -> list[Command]:
        if isinstance(asked, CommandConnect):
            sent.append(asked.auth_data)
            # Brokers take the answer before they continue.
            return [CommandAuthChallenge()]
        if isinstance(asked, CommandAuthResponse):
            sent.append(asked.response.auth_data)
            return [CommandConnected(server_version="double")]
        return _greeting(asked)

    with _broker(answer) as url:
        RawProducer(
            url,
            TOPIC,
            WireAccess(auth=Token(SecretStr("secret")), destinations=LOCAL),
            name="copy",
            notes={},
            on_stored=lambda _: None,
        ).close()
    assert sent == [b"secret", b"secret"]


def test_a_broker_that_refuses() -> None:
    """Refused credentials, a silent broker, and a port without a broker are different errors."""
    denied = CommandError(request_id=2**64 - 1, error=ServerError.AUTHENTICATION, message="no such token")
    with _broker(lambda _: [denied]) as url, pytest.raises(StoreDenied, match="no such token"):
        _producer(url, [])
    with _broker(lambda _: []) as url, pytest.raises(StoreUnreachable, match="did not answer"):
        _producer(url, [], SHORT)
    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        _producer(url, [])


def test_frames_are_as_large_as_the_broker_allows() -> None:
    """A frame that is larger than any ordinary one is taken from a broker that takes such messages only."""
    for allowed, kind in ((5 << 20, StoreProtocolError), (100 << 20, StoreUnreachable)):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def announce(server: socket.socket = server, allowed: int = allowed) -> None:
                connection, _ = server.accept()
                with connection, suppress(ConnectionError):
                    connection.recv(10_000)
                    connection.sendall(encode(CommandConnected(server_version="double", max_message_size=allowed)))
                    connection.recv(10_000)
                    connection.sendall(SIZE.pack(70 << 20))
                    # Until the client gives up.
                    connection.recv(10_000)

            thread = threading.Thread(target=announce, daemon=True)
            thread.start()
            url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"
            with BrokerConnection(addresses(url)[0], USUAL) as connection:
                # The rest of a frame that is allowed never comes.
                if kind is StoreUnreachable:
                    connection.access = SHORT.connecting(secure=False)
                connection.send(encode(CommandPing()))
                with pytest.raises(kind, match=url):
                    connection.receive("waiting")
            thread.join(timeout_for(5))


def test_a_tls_handshake_that_the_other_side_ends() -> None:
    """A broker that goes down during the handshake of TLS has refused nothing: another attempt may succeed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        with pytest.raises(StoreUnreachable, match="closed the connection"):
            greet(f"pulsar+ssl://127.0.0.1:{server.getsockname()[1]}", USUAL)
        thread.join(timeout_for(5))


def test_the_first_reachable_broker_checks_the_credentials() -> None:
    """A broker that is down is skipped, one that refuses is not; if no broker is up, the error names the first one."""
    with _broker(lambda _: []) as silent:
        pass
    with _broker(_greeting) as url:
        greet(f"{silent},{url.removeprefix('pulsar://')}", USUAL)
    denied = CommandError(request_id=2**64 - 1, error=ServerError.AUTHENTICATION, message="no such token")
    with (
        _broker(lambda _: [denied]) as url,
        _broker(_greeting) as other,
        pytest.raises(StoreDenied, match="no such token"),
    ):
        greet(f"{url},{other.removeprefix('pulsar://')}", USUAL)
    with pytest.raises(StoreUnreachable, match=silent):
        greet(silent, SHORT)


def test_a_proxy_is_asked_to_connect_to_the_owner() -> None:
    """The connection that opens the producer goes to the proxy again, which learns host and port of the owner."""
    named: list[str] = []

    def answer(asked: Command) -> list[Command]:
        if isinstance(asked, CommandConnect):
            named.append(asked.proxy_to_broker_url)
        if isinstance(asked, CommandLookupTopic):
            return [
                CommandLookupTopicResponse(
                    request_id=asked.request_id,
                    response=CommandLookupTopicResponse.Connect,
                    brokerServiceUrl="pulsar://broker-7.internal:6650",
                    proxy_through_service_url=True,
                )
            ]
        return _greeting(asked)

    with _broker(answer) as url, _producer(url, []):
        assert named == ["", "broker-7.internal:6650"]


@contextmanager
def _broker(answer: Answer) -> Generator[str]:
    """Run a double of a broker that answers each command on one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"pulsar://127.0.0.1:{server.getsockname()[1]}"
        _URLS.append(url)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                # A client that has seen enough resets the connection.
                with suppress(ConnectionError), connection, connection.makefile("rb") as incoming:
                    while len(size := incoming.read(4)) == 4:
                        asked, _ = decode(incoming.read(int.from_bytes(size)))
                        assert asked is not None
                        connection.sendall(b"".join(encode(command) for command in answer(asked)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown(socket.SHUT_RDWR)
    thread.join(timeout_for(5))
