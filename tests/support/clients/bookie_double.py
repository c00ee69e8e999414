"""A bookie in this process that answers reads of version 2; what real ones do is in the integration tier."""

from __future__ import annotations

import socketserver
import struct
import threading
from enum import Enum
from types import TracebackType
from typing import Self

from clients.bookkeeper import wire_v2
from clients.bookkeeper.ledgers import Bookie

_HEAD = struct.Struct(">Iqq")


class BatchReads(Enum):
    """Reaction to a batch read: BookKeeper 4.17 answers, older releases end the connection."""

    ANSWERED = 1
    REFUSED = 2
    CLOSED = 3
    ALL_CLOSED = 4
    """It ends the connection at each request."""


class BookieDouble:
    """A bookie with one ledger's entries; a context manager.

    Args:
        entries: bodies of the ledger's entries.
        batches: what it does with batch reads.

    Attributes:
        connections: how many were made to it.
        operations: what it was asked for.
    """

    def __init__(self, entries: list[bytes], batches: BatchReads = BatchReads.ANSWERED) -> None:
        self.connections = 0
        self.operations: list[int] = []
        self._entries = entries
        self._batches = batches
        double = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                double.connections += 1
                while size := self.rfile.read(wire_v2.LENGTH):
                    answer = double.answer(self.rfile.read(int.from_bytes(size)))
                    if answer is None:
                        return
                    self.wfile.write(len(answer).to_bytes(wire_v2.LENGTH) + answer)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def registered(self, bookie_id: str = "") -> dict[str, Bookie]:
        """Return the registration of this bookie alone; without an id of its own it is called by its address."""
        host, _, port = self.address.rpartition(":")
        name = bookie_id or self.address
        return {name: Bookie(name, host, int(port), True)}

    def answer(self, request: bytes) -> bytes | None:
        """Return the answer to a request without its length; None ends the connection."""
        header, ledger_id, entry_id = _HEAD.unpack_from(request)
        operation = wire_v2.operation(header)
        self.operations.append(operation)
        if self._batches is BatchReads.ALL_CLOSED:
            return None
        if operation == wire_v2.READ:
            return self._head(header, ledger_id, entry_id) + b"".join(self._entries[entry_id : entry_id + 1])
        if self._batches is BatchReads.CLOSED:
            return None
        if self._batches is BatchReads.REFUSED:
            return wire_v2.ANSWER.pack(header, wire_v2.BAD_REQUEST, ledger_id, entry_id)
        number, count = struct.unpack_from(">qi", request, _HEAD.size)
        bodies = self._entries[entry_id : entry_id + count]
        frames = b"".join(len(body).to_bytes(wire_v2.LENGTH) + body for body in bodies)
        return self._head(header, ledger_id, entry_id) + number.to_bytes(8) + frames

    def _head(self, header: int, ledger_id: int, entry_id: int) -> bytes:
        code = wire_v2.OK if entry_id < len(self._entries) else wire_v2.NO_ENTRY
        return wire_v2.ANSWER.pack(header, code, ledger_id, entry_id)
