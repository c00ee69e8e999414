"""A TCP proxy on this machine that can be cut, fall silent, or be slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16
_LIMIT = 10.0


class Proxy:
    """Passes connections on to one server, in a thread of its own; a context manager.

    Args:
        server: `host:port`.

    Attributes:
        address: where clients connect instead.
    """

    def __init__(self, server: str) -> None:
        self._host, _, port = server.rpartition(":")
        self._port = int(port)
        self._cut = False
        self._delay = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop)
        self._server = listening.result(_LIMIT)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._server.close)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT)

    def cut(self) -> None:
        """Close all connections, and every new one at once."""
        self._do(self._close_all)

    def silence(self) -> None:
        """Keep connections open and take new ones, but let no byte through, as a firewall that drops packets."""
        self._do(self._flowing.clear)

    def slow_down(self, seconds: float) -> None:
        """Hold each chunk back for some time on its way."""
        self._delay = seconds

    def heal(self) -> None:
        """Restore: forward everything again."""
        self._cut, self._delay = False, 0.0
        self._do(self._flowing.set)

    def _do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(_LIMIT)

    def _close_all(self) -> None:
        self._cut = True
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            onward_reader, onward_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        # Cut since: nothing that passes on would notice it.
        if self._cut:
            writer.transport.abort()
            onward_writer.transport.abort()
            return
        for source, sink in ((reader, onward_writer), (onward_reader, writer)):
            self._open.add(sink)
            pump = asyncio.ensure_future(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(_CHUNK):
                await asyncio.sleep(self._delay)
                await self._flowing.wait()
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._open.discard(sink)
            sink.close()
