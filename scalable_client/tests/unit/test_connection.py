"""Connections match answers to requests, detect silence, and never wait for a dead broker."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from scalable_client.tests.support.fake_broker import NONE, FakeBroker, Peer

from pulsar_scalable.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ProtocolViolation,
    Refused,
    ScalableError,
    TimedOut,
    TopicNotFound,
    Unsupported,
)
from pulsar_wire import connection as connection_module
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access, Address, addresses
from pulsar_wire.connection import Channel, Connection, wait_until
from pulsar_wire.frames import Command
from pulsar_wire.pool import Pool
from pulsar_wire.transport import connect
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

ACCESS = Access(operation_timeout=20, connection_timeout=20)
LAST = api.CommandGetLastMessageIdResponse

_ASK_ONCE = """
import sys
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access, addresses
from pulsar_wire.connection import Connection

access = Access(connection_timeout=20)
connection = Connection(addresses(sys.argv[1])[0], access, own_thread=bool(sys.argv[2]))
connection.ask(api.CommandGetLastMessageId(consumer_id=1), "asking", api.CommandGetLastMessageIdResponse, 1)
"""
"""A program that asks for a last message, and waits a second for the answer."""


def ask(connection: Connection, timeout: float | None = None) -> Command:
    """Ask for the last message."""
    return connection.ask(api.CommandGetLastMessageId(consumer_id=1), "asking", LAST, timeout)


def last(request: api.CommandGetLastMessageId) -> Command:
    """Return an answer to the question for the last message."""
    return LAST(last_message_id=api.MessageIdData(ledgerId=1, entryId=0), request_id=request.request_id)


def usual(_peer: Peer, _command: Command) -> None:
    """Return the usual answers of a broker."""


def test_answers_in_any_order() -> None:
    """Each thread gets the answer to its own request, whichever comes first."""
    asked: list[api.CommandGetLastMessageId] = []

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if not isinstance(command, api.CommandGetLastMessageId):
            return None
        asked.append(command)
        if len(asked) < 5:
            return []
        places = [api.MessageIdData(ledgerId=request.request_id, entryId=0) for request in asked]
        return [
            LAST(last_message_id=place, request_id=request.request_id)
            for place, request in reversed(list(zip(places, asked, strict=True)))
        ]

    results: list[int] = []

    def run(number: int) -> None:
        request = 100 + number
        got = connection.ask(api.CommandGetLastMessageId(consumer_id=1, request_id=request), "asking", LAST)
        assert isinstance(got, LAST)
        results.append(got.last_message_id.ledgerId - request)

    with FakeBroker(answer) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_for(20))
        connection.close()
    assert results == [0] * 5


def test_refusals_are_typed() -> None:
    """Each error code has its type, and the error contains the broker's text."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandGetLastMessageId):
            return [api.CommandError(request_id=command.request_id, error=11, message="no such thing")]
        return None

    with FakeBroker(answer) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        with pytest.raises(TopicNotFound, match="asking: no such thing") as caught:
            ask(connection)
        assert (caught.value.code, caught.value.message) == (11, "no such thing")
        connection.close()


def test_refused_credentials() -> None:
    """The token is sent, and its refusal is named."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandConnect):
            return [
                api.CommandError(
                    request_id=NONE, error=3, message=f"{command.auth_method_name} {command.auth_data!r} is not known"
                )
            ]
        return None

    with FakeBroker(answer) as broker, pytest.raises(AuthenticationFailed, match="token b'secret' is not known"):
        Connection(addresses(broker.url)[0], Access(connection_timeout=20, token="secret"))


def test_a_function_for_tokens_that_fails() -> None:
    """A closed handshake counts as a failed connection, so a caller that retries reconnects."""

    def token() -> str:
        raise RuntimeError("no token now")

    with FakeBroker(usual) as broker, pytest.raises(ConnectionLost, match=r"returns tokens failed.*no token now"):
        Connection(addresses(broker.url)[0], Access(connection_timeout=20, token=token))


def test_tokens_are_given_again() -> None:
    """A broker that asks before the token expires gets a new one."""
    tokens = iter(["first", "second"])
    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], Access(token=lambda: next(tokens)))
        broker.peers[0].push(api.CommandAuthChallenge())
        wait_for("the second token", lambda: broker.of(api.CommandAuthResponse), 20)
        (answer,) = broker.of(api.CommandAuthResponse)
        assert isinstance(answer, api.CommandAuthResponse)
        assert answer.response == api.AuthData(auth_method_name="token", auth_data=b"second")
        connection.close()


def test_no_answer() -> None:
    """A request that is not answered ends in time, and the connection continues."""
    with FakeBroker(lambda _peer, command: [] if isinstance(command, api.CommandGetLastMessageId) else None) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        with pytest.raises(TimedOut, match=r"did not answer for 0\.2 s"):
            ask(connection, 0.2)
        assert connection.lost is None
        connection.close()


def test_no_greeting() -> None:
    """A server that accepts the connection but sends nothing is not treated as a broker."""
    with FakeBroker(lambda _peer, _command: []) as broker, pytest.raises(TimedOut):
        Connection(addresses(broker.url)[0], Access(connection_timeout=0.2))


def test_no_server_at_the_address() -> None:
    """A closed port is noticed at once."""
    with FakeBroker(usual) as broker:
        address = addresses(broker.url)[0]
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        Connection(address, ACCESS)


@pytest.mark.parametrize("host", ["", "a..b", 64 * "a"])
def test_names_that_no_host_can_have(host: str) -> None:
    """A lookup may return an invalid host name; it counts as an address that cannot be reached."""
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        connect(Address(host, 1), ACCESS)


def test_all_that_wait_learn_of_the_loss() -> None:
    """After a loss, pending requests fail immediately, handlers are called once, and later requests are rejected."""
    errors: list[ScalableError] = []

    class Handler:
        def on_command(self, command: Command, body: bytes) -> None:
            raise AssertionError(command)

        def on_lost(self, connection: Connection, error: ScalableError) -> None:
            del connection
            errors.append(error)

    def answer(peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandGetLastMessageId):
            peer.drop()
        return None

    with FakeBroker(answer) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        handler = Handler()
        connection.attach(Channel.PRODUCER, 1, handler)
        connection.attach(Channel.PRODUCER, 2, handler)
        begun = time.monotonic()
        with pytest.raises(ConnectionLost):
            ask(connection, 30)
        assert time.monotonic() - begun < 15
        wait_for("the handler's call", lambda: errors, 20)
        with pytest.raises(ConnectionLost):
            ask(connection)
        with pytest.raises(ConnectionLost):
            connection.attach(Channel.PRODUCER, 3, handler)
    assert len(errors) == 1


def test_silence() -> None:
    """A broker that answers pings stays, one that does not is given up."""
    with FakeBroker(usual) as broker:
        # A broker that gets no processor for so long would be given up.
        connection = Connection(addresses(broker.url)[0], Access(keep_alive=1))
        wait_for("three pings", lambda: len(broker.of(api.CommandPing)) > 2, 20)
        assert connection.lost is None
        connection.close()
    with FakeBroker(lambda _peer, command: [] if isinstance(command, api.CommandPing) else None) as broker:
        connection = Connection(addresses(broker.url)[0], Access(keep_alive=0.1))
        wait_for("the connection to be given up", lambda: connection.lost, 20)
        assert "was silent" in str(connection.lost)


def test_silence_of_the_client() -> None:
    """A client that could not read for a time asks the broker before it gives up the connection."""
    keep_alive = 0.1

    class Slow:
        def on_command(self, command: Command, body: bytes) -> None:
            del command, body
            time.sleep(3 * keep_alive)

        def on_lost(self, connection: Connection, error: ScalableError) -> None:
            del connection, error

    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], Access(keep_alive=keep_alive))
        connection.attach(Channel.PRODUCER, 1, Slow())
        pings = len(broker.of(api.CommandPing))
        broker.peers[0].push(api.CommandCloseProducer(producer_id=1, request_id=NONE))
        wait_for("a ping", lambda: len(broker.of(api.CommandPing)) > pings, 20)
        connection.close()


def test_waits_end_also_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow each interval is, a wait ends; after one that was too long, what has arrived is read first."""
    intervals: list[float] = []
    monkeypatch.setattr(connection_module, "time", SimpleNamespace(monotonic=lambda: sum(intervals)))
    assert not wait_until(lambda: False, lambda seconds: intervals.append(4 * seconds), 2.5)
    assert len(intervals) == 11
    intervals.clear()
    assert wait_until(
        lambda: len(intervals) > 10, lambda seconds: intervals.append((1 + (len(intervals) == 9)) * seconds), 30
    )


def test_an_answer_to_a_ping_that_arrives_during_a_freeze() -> None:
    """A client that is frozen while the broker answers a ping reads the answer before it gives up the connection."""
    # A broker that gets no processor for so long would be given up.
    keep_alive = 1.0
    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], Access(keep_alive=keep_alive))
        transport = connection._transport  # pyright: ignore[reportPrivateUsage] - no test can freeze itself
        selector, socket = transport._selector, transport._socket  # pyright: ignore[reportPrivateUsage] - the same
        select = selector.select

        def freeze(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            ready = select(timeout)
            if socket not in [key.fileobj for key, _ in ready]:
                return ready
            selector.select = select
            time.sleep(1.5 * keep_alive)
            return []

        selector.select = freeze
        wait_for("another ping", lambda: connection.lost or len(broker.of(api.CommandPing)) > 1, 20)
        assert connection.lost is None
        connection.close()


@pytest.mark.parametrize("own_thread", [True, False])
def test_a_process_that_is_frozen(own_thread: bool) -> None:
    """An answer that arrives while the process is frozen for longer than the timeout is read when it runs again."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        if not isinstance(command, api.CommandGetLastMessageId):
            return None
        client.send_signal(signal.SIGSTOP)
        threading.Timer(2.0, client.send_signal, (signal.SIGCONT,)).start()
        return [last(command)]

    with FakeBroker(answer) as broker:
        program = [sys.executable, "-c", _ASK_ONCE, broker.url, "own" if own_thread else ""]
        client = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert client.wait(timeout_for(60)) == 0


def test_a_process_that_is_frozen_before_it_sends() -> None:
    """A request is not late by the time that passed before it was sent."""

    def answer(_peer: Peer, command: Command) -> list[Command] | None:
        return [last(command)] if isinstance(command, api.CommandGetLastMessageId) else None

    with FakeBroker(answer) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS, own_thread=False)
        transport = connection._transport  # pyright: ignore[reportPrivateUsage] - no test can freeze itself
        step = transport.step

        def freeze(timeout: float, take: Callable[[bytes], None]) -> bool:
            transport.step = step
            time.sleep(1.5)
            return step(timeout, take)

        transport.step = freeze
        ask(connection, 1)
        connection.close()


def test_pings_are_answered() -> None:
    """A ping is answered, so that the broker keeps the connection."""
    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        broker.peers[0].push(api.CommandPing())
        wait_for("a pong", lambda: broker.of(api.CommandPong), 20)
        connection.close()


def test_invalid_bytes_end_the_connection() -> None:
    """The connection is closed, and the bytes are not interpreted."""

    def answer(_peer: Peer, command: Command) -> list[Command | tuple[Command, bytes]] | None:
        if isinstance(command, api.CommandGetLastMessageId):
            return [api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=1, entryId=1))]
        return None

    class Handler:
        def on_command(self, command: Command, body: bytes) -> None:
            raise ProtocolViolation(f"{command}: {len(body)} bytes")

        def on_lost(self, connection: Connection, error: ScalableError) -> None:
            del connection, error

    with FakeBroker(answer) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        connection.attach(Channel.CONSUMER, 1, Handler())
        with pytest.raises(ConnectionLost, match="0 bytes"):
            ask(connection)


def test_callbacks_cannot_wait_for_their_connection() -> None:
    """A callback that waits for its own connection is refused: it would wait for itself."""
    errors: list[BaseException] = []

    class Handler:
        def on_command(self, command: Command, body: bytes) -> None:
            del command, body
            try:
                ask(connection)
            except ScalableError as error:
                errors.append(error)

        def on_lost(self, connection: Connection, error: ScalableError) -> None:
            del connection, error

    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)
        connection.attach(Channel.CONSUMER, 1, Handler())
        broker.peers[0].push(api.CommandReachedEndOfTopic(consumer_id=1))
        wait_for("the refusal", lambda: errors, 20)
        connection.close()
    assert "cannot wait" in str(errors[0])


def test_large_frames_are_sent_whole() -> None:
    """More than a socket takes at once, from several threads, in each thread's order."""
    with FakeBroker(usual) as broker:
        connection = Connection(addresses(broker.url)[0], ACCESS)

        def run(number: int) -> None:
            for turn in range(20):
                connection.send(api.CommandSend(producer_id=number, sequence_id=turn), bytes(200_000))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        wait_until_equal("all frames", lambda: len(broker.of(api.CommandSend)), 60, 20)
        connection.close()
        sent = [
            (command.producer_id, command.sequence_id)
            for command in broker.received
            if isinstance(command, api.CommandSend)
        ]
    for number in range(3):
        assert [turn for producer, turn in sent if producer == number] == list(range(20))


def test_any_broker_of_a_url() -> None:
    """Brokers that are down are skipped."""
    with FakeBroker(usual) as gone:
        dead = gone.port
    with FakeBroker(usual) as broker:
        pool = Pool(f"pulsar://127.0.0.1:{dead},127.0.0.1:{broker.port}", ACCESS)
        connection = pool.to_any()
        assert connection.address.port == broker.port
        assert pool.to_any() is connection
        broker.drop_all()
        wait_for("the loss", lambda: connection.lost, 20)
        assert pool.to_any() is not connection
        pool.close()


def test_owners_are_found_through_redirects() -> None:
    """Redirects are followed, with what they say of authority."""

    def redirect(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandLookupTopic):
            return [
                api.CommandLookupTopicResponse(
                    brokerServiceUrl=owner.url,
                    brokerServiceUrlTls=None,
                    response=api.CommandLookupTopicResponse.Redirect,
                    request_id=command.request_id,
                    authoritative=True,
                )
            ]
        return None

    with FakeBroker(usual) as owner, FakeBroker(redirect) as first:
        pool = Pool(first.url, ACCESS)
        assert pool.to_owner("persistent://a/b/c").address.port == owner.port
        assert [command.authoritative for command in owner.received if isinstance(command, api.CommandLookupTopic)] == [
            True
        ]
        pool.close()


def test_brokers_that_hang_are_replaced() -> None:
    """The next lookup uses another broker."""

    def hang(_peer: Peer, command: Command) -> list[Command] | None:
        return [] if isinstance(command, api.CommandLookupTopic) else None

    with FakeBroker(hang) as sick, FakeBroker(usual) as sound:
        pool = Pool(f"{sick.url},127.0.0.1:{sound.port}", Access(operation_timeout=0.2))
        with pytest.raises(TimedOut):
            pool.to_owner("persistent://a/b/c")
        pool.access = ACCESS
        assert pool.to_owner("persistent://a/b/c").address.port == sound.port
        pool.close()


def test_brokers_that_send_each_other_on() -> None:
    """Redirections in a circle end with an error."""

    def redirect(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandLookupTopic):
            return [
                api.CommandLookupTopicResponse(
                    brokerServiceUrl=broker.url,
                    response=api.CommandLookupTopicResponse.Redirect,
                    request_id=command.request_id,
                )
            ]
        return None

    with FakeBroker(redirect) as broker:
        pool = Pool(broker.url, ACCESS)
        with pytest.raises(ConnectionLost, match="20 times"):
            pool.to_owner("persistent://a/b/c")
        pool.close()


def test_lookups_that_fail() -> None:
    """With the broker's reason."""

    def refuse(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandLookupTopic):
            return [
                api.CommandLookupTopicResponse(
                    brokerServiceUrl=None,
                    brokerServiceUrlTls=None,
                    response=api.CommandLookupTopicResponse.Failed,
                    request_id=command.request_id,
                    error=22,
                    message="not allowed",
                )
            ]
        return None

    with FakeBroker(refuse) as broker:
        pool = Pool(broker.url, ACCESS)
        with pytest.raises(Refused, match="not allowed"):
            pool.to_owner("persistent://a/b/c")
        pool.close()


def test_proxies_are_not_supported() -> None:
    """A lookup that names the service URL as the way to the owner raises `Unsupported`."""

    def proxy(_peer: Peer, command: Command) -> list[Command] | None:
        if isinstance(command, api.CommandLookupTopic):
            return [
                api.CommandLookupTopicResponse(
                    brokerServiceUrl="pulsar://broker-7.internal:6650",
                    response=api.CommandLookupTopicResponse.Connect,
                    request_id=command.request_id,
                    proxy_through_service_url=True,
                )
            ]
        return None

    with FakeBroker(proxy) as broker:
        pool = Pool(broker.url, ACCESS)
        with pytest.raises(Unsupported, match="through a proxy"):
            pool.to_owner("persistent://a/b/c")
        pool.close()


def test_addresses() -> None:
    """An address has one scheme, any number of hosts, and default ports."""
    assert addresses("pulsar://a:1,b,[::1]:3/") == [Address("a", 1), Address("b", 6650), Address("::1", 3)]
    assert addresses("pulsar+ssl://a") == [Address("a", 6651, secure=True)]
    assert str(Address("::1", 3)) == "pulsar://[::1]:3"
    for wrong in ("http://a:1", "pulsar://", "a:1", "pulsar://a:b", "pulsar://:1"):
        with pytest.raises(Unsupported):
            addresses(wrong)
