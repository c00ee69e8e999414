"""A server that says what a test wants, on a real socket, and processes that read it with little memory."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import pathlib
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from types import TracebackType
from typing import Self, TypeVar

from clients import deadline

ResultT = TypeVar("ResultT")

MEMORY = 768 << 20
"""Bytes that a reader may take: the largest answer, and copies of it."""
SECONDS = 300.0
"""Longest time of one reading, and of the start of the process before the first one: only a reader that hangs reaches
it."""
LONG_TIMEOUT = 60.0
"""The timeout of readers whose servers do not drip: only a reader that hangs reaches it."""
TIMEOUT = 3.0
"""Seconds that a part of an answer may take, for readers of servers that drip: thirty times the pause between drops, as
on a busy machine both processes wait for a processor."""
PARTS = 2
"""How many timeouts a whole answer may take in a process with little memory: fewer than elsewhere, to save time."""
WHOLE = f"{PARTS * TIMEOUT:g} s"
"""The longest time of a whole answer, as messages name it."""

_PAUSE = 0.1
_STEP = 64 << 10
# Of malloc.h.
_M_ARENA_MAX = -8
_HTTP_OK = b"HTTP/1.1 200 OK\r\n"
Script = Callable[[socket.socket], None]
"""What the server does with one connection."""


class HostileServer:
    """Runs a script for each connection, in a `with` block.

    Attributes:
        port: of the server.
        address: `host:port`.
        url: `http://host:port`.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="hostile", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)
            endpoint.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._socket.accept()
                self._open.append(connected)
                threading.Thread(target=self._serve, args=(connected,), name="hostile", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        # The client ends the connection, or the test does.
        with contextlib.suppress(OSError):
            self._script(connected)


def slowly(data: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one piece after the other, with a pause after each."""
    pause = threading.Event()
    for piece in data:
        yield piece
        pause.wait(_PAUSE)


def drip(connected: socket.socket, data: Iterable[bytes]) -> None:
    """Send one piece after the other, with a pause after each."""
    for piece in slowly(data):
        connected.sendall(piece)


def received(connected: socket.socket) -> bytes:
    """Return what the client sent, of which there is something."""
    return connected.recv(_STEP)


def limit(room: int) -> None:
    """Limit the memory of this process to so many bytes more than it has, and the time of whole answers."""
    deadline.PARTS = PARTS
    # Otherwise threads reserve 64 MiB each, and gRPC starts more of them where all wait for a processor.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def dripping_body(connected: socket.socket) -> None:
    """Answer a request over HTTP with a body that never ends, in one line."""
    received(connected)
    connected.sendall(_HTTP_OK + b"content-length: 1000000\r\n\r\n")
    drip(connected, repeat(b"["))


def dripping_header(connected: socket.socket) -> None:
    """Answer a request over HTTP with headers that never end."""
    received(connected)
    connected.sendall(_HTTP_OK)
    drip(connected, (b"x-%d: 1\r\n" % number for number in range(10_000)))


class LittleMemory:
    """A process that reads for a test, and may take `SECONDS` for each reading.

    Args:
        room: bytes that it may take, more than it has.
    """

    def __init__(self, room: int = MEMORY) -> None:
        context = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, context, initializer=limit, initargs=(room,))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.shutdown(wait=False, cancel_futures=True)

    def read(self, reader: Callable[..., ResultT], *args: object) -> ResultT:
        """Return what a reader returns, or raise what it raises.

        Raises:
            BrokenExecutor: the process died.
            TimeoutError: the reader hangs.
        """
        return self._process.submit(reader, *args).result(SECONDS)
