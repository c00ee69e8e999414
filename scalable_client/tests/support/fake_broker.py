"""A fake broker that answers as a test defines, for behaviour that real brokers show rarely or at no certain time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.frames import Command, FrameBuffer, decode, encode

NONE = (1 << 64) - 1
"""What brokers send for -1: no ledger, no entry, no request."""

Answers = Iterable[Command | tuple[Command, bytes]]
OnCommand = Callable[["Peer", Command], Answers]


def unheard(*_: object) -> None:
    """Ignore a callback."""


class Peer:
    """One client's connection.

    Attributes:
        number: how many connections came before it.
    """

    def __init__(self, connected: socket.socket, number: int) -> None:
        self.number = number
        self._socket = connected

    def push(self, command: Command, body: bytes = b"") -> None:
        """Send a command that is not an answer."""
        self._socket.sendall(encode(command, body))

    def drop(self) -> None:
        """Break the connection as a crash does."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class FakeBroker:
    """Greets, names itself the owner of every topic, opens what is to be opened, and asks a test for all else.

    Args:
        on_command: gives answers; called for every command before the broker's own answer, which is sent only where
            this gives None.
        tls: of the server.
    """

    def __init__(
        self, on_command: Callable[[Peer, Command], Answers | None], *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._on_command = on_command
        self._tls = tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.peers: list[Peer] = []
        self.received: list[Command] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The service URL."""
        return f"{'pulsar+ssl' if self._tls else 'pulsar'}://127.0.0.1:{self.port}"

    def of(self, kind: type[Command]) -> list[Command]:
        """Return the received commands of a type."""
        return [command for command in self.received if type(command) is kind]

    def drop_all(self) -> None:
        """Break all connections that there are now."""
        # A client that connects again in the meantime keeps its new one.
        for peer in [*self.peers]:
            peer.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._server.accept()
                threading.Thread(target=self._greet, args=(plain,), daemon=True).start()

    def _greet(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connected = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
            peer = Peer(connected, len(self.peers))
            self.peers.append(peer)
            self._serve(connected, peer)

    def _serve(self, connected: socket.socket, peer: Peer) -> None:
        buffer = FrameBuffer()
        while data := connected.recv(1 << 16):
            for frame in buffer.feed(data):
                command = decode(frame).command
                assert command is not None, frame.hex()
                self.received.append(command)
                answers = self._on_command(peer, command)
                for answer in self._usual(command) if answers is None else answers:
                    reply, body = answer if isinstance(answer, tuple) else (answer, b"")
                    peer.push(reply, body)

    def _usual(self, command: Command) -> list[Command]:
        match command:
            case api.CommandConnect():
                flags = api.FeatureFlags(supports_scalable_topics=True)
                return [api.CommandConnected(server_version="fake", max_message_size=1000, feature_flags=flags)]
            case api.CommandLookupTopic():
                return [
                    api.CommandLookupTopicResponse(
                        brokerServiceUrl=self.url,
                        brokerServiceUrlTls=self.url,
                        response=api.CommandLookupTopicResponse.Connect,
                        request_id=command.request_id,
                    )
                ]
            case api.CommandProducer():
                name = command.producer_name or "given"
                return [
                    api.CommandProducerSuccess(request_id=command.request_id, producer_name=name, last_sequence_id=-1)
                ]
            case api.CommandPing():
                return [api.CommandPong()]
            case (
                api.CommandSubscribe()
                | api.CommandCloseProducer()
                | api.CommandCloseConsumer()
                | api.CommandUnsubscribe()
                | api.CommandSeek()
                | api.CommandScalableTopicUnsubscribe()
            ):
                return [api.CommandSuccess(request_id=command.request_id)]
            case _:
                return []
