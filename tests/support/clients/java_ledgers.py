"""BookKeeper's own Java client (`java/Ledgers.java`) for tests: it writes what we read, and reads what we wrote.

with JavaLedgers(toolchain, folder) as java:
    [ledger] = java.create(uri, Ledger(ensemble=2, write=2, ack=2, entries=100))
    assert java.read(uri, [ledger])[0].entries == 100
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.java_programs import JavaTool
from pulsar_devstack.servers.toolchain import Toolchain

__all__ = ["Digest", "HeldLedger", "JavaLedgers", "Ledger", "LedgerRead", "Refused", "payloads_digest"]

Digest = Literal["CRC32", "HMAC", "CRC32C", "DUMMY"]


@dataclass(frozen=True)
class Ledger:
    """Settings of a new ledger.

    Attributes:
        ensemble: bookies of a segment.
        write: bookies that get each entry.
        ack: answers that an entry waits for.
        digest: of its entries.
        password: of the ledger; Pulsar's is empty.
        custom: its custom metadata.
        entries: how many to write.
        sizes: bytes of the payloads of entries 0, 1, ...; over and over.
        seed: gives ledgers payloads of their own; see `payload`.
    """

    ensemble: int = 1
    write: int = 1
    ack: int = 1
    digest: Digest = "CRC32C"
    password: bytes = b""
    custom: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    entries: int = 0
    sizes: Sequence[int] = (100,)
    seed: int = 0

    def payload(self, entry: int) -> bytes:
        """Return the payload of entry number `entry`: seed and number, four bytes each, repeated."""
        size = self.sizes[entry % len(self.sizes)]
        return (struct.pack(">iI", self.seed, entry) * (size // 8 + 1))[:size]

    def payloads(self) -> list[bytes]:
        """Return the payloads of all entries."""
        return [self.payload(entry) for entry in range(self.entries)]


class LedgerRead(NamedTuple):
    """Content of a ledger as the Java client read it; after a failure `error` is set, and the rest may be empty.

    Attributes:
        ledger_id: which.
        error: the simple name of the exception, or None.
        state: OPEN, IN_RECOVERY or CLOSED when it was opened.
        entries: how many entries were read; of an open ledger, those that its writer has confirmed.
        bytes: the sum of their payloads.
        length: what the ledger says it is.
        sha256: of all payloads; see `payloads_digest`.
        quorum: ensemble size, write quorum, ack quorum.
        custom: custom metadata.
        segments: first entry to bookie ids.
    """

    ledger_id: int
    error: str | None
    state: str
    entries: int
    bytes: int
    length: int
    sha256: str
    quorum: tuple[int, ...]
    custom: dict[str, bytes]
    segments: dict[int, tuple[str, ...]]


def payloads_digest(payloads: Iterable[bytes]) -> str:
    """Return the sha256 of payloads, each after its length in four bytes, as `LedgerRead` has it."""
    digest = hashlib.sha256()
    for payload in payloads:
        digest.update(struct.pack(">I", len(payload)))
        digest.update(payload)
    return digest.hexdigest()


class JavaLedgers(JavaTool):
    """One Java machine with BookKeeper's client; when it ends, held ledgers stay open.

    Metadata service URIs may be `zk+hierarchical://...` and `metadata-store:zk:...`. Every call may raise
    `Refused`.

    Args:
        tools: Java and the jars.
        folder: where its log goes.
        settings: lines of the client's configuration that win over the defaults.
    """

    def __init__(self, tools: Toolchain, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(Path(__file__).parent / "java" / "Ledgers.java", tools, folder)
        self._settings = dict(settings or {})

    def create(
        self,
        uri: str,
        ledger: Ledger,
        *,
        count: int = 1,
        ids: Sequence[int] | None = None,
        close: bool = True,
    ) -> list[int]:
        """Write ledgers that are alike, many at a time; returns their ids.

        Args:
            uri: the cluster.
            ledger: what each is made with.
            count: how many, with ids of the cluster's generator.
            ids: ids of the caller's choice instead.
            close: False leaves them open, with an abandoned writer.
        """
        return self.ask("create", uri=uri, **_made_with(ledger), ids=ids or [None] * count, close=close)

    def hold(self, uri: str, ledger: Ledger, ledger_id: int | None = None) -> HeldLedger:
        """Write a ledger's entries one after the other and keep it open."""
        answer = self.ask("hold", uri=uri, **_made_with(ledger), ids=[ledger_id])
        return HeldLedger(self, uri, answer["handle"], answer["ledger_id"])

    def read(
        self,
        uri: str,
        ids: Iterable[int],
        *,
        digest: Digest = "CRC32C",
        password: bytes = b"",
        recover: bool = False,
    ) -> list[LedgerRead]:
        """Read whole ledgers; failures of single ledgers are in their `error`.

        Args:
            uri: the cluster.
            ids: which ledgers.
            digest: what they were made with; wrong ones fail as for any client.
            password: likewise.
            recover: open them as a new owner does, which fences the writer of an open one and closes it.
        """
        secret = {"digest": digest, "password": _text(password)}
        answer = self.ask("read", uri=uri, ids=list(ids), recover=recover, **secret)
        return [_read(ledger) for ledger in answer]

    def next_id(self, uri: str) -> int:
        """Return which id the cluster gives to a new ledger; the ledger is deleted again."""
        return self.ask("next_id", uri=uri, **_made_with(Ledger()))

    def delete(self, uri: str, ids: Iterable[int]) -> int:
        """Delete ledgers; returns how many."""
        return self.ask("delete", uri=uri, ids=list(ids))

    def ask(self, op: str, **request: Any) -> Any:
        """Send one request and return its result; see `JavaTool.ask`."""
        return super().ask(op, settings=self._settings, **request)


class HeldLedger:
    """A ledger that a Java client keeps open.

    Attributes:
        ledger_id: its id.
    """

    def __init__(self, java: JavaLedgers, uri: str, handle: int, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._java, self._uri, self._handle = java, uri, handle

    def add(self, *payloads: bytes) -> int:
        """Add entries, each after the one before is acknowledged; returns the number of the last.

        Raises:
            Refused: of kind `BKLedgerFencedException` if another client has fenced the ledger.
        """
        return self._java.ask(
            "add", uri=self._uri, handle=self._handle, payloads=[_text(payload) for payload in payloads]
        )

    def close(self) -> None:
        """Close the ledger, as its writer."""
        self._java.ask("close", uri=self._uri, handle=self._handle)

    def abandon(self) -> None:
        """Forget the ledger; it stays open."""
        self._java.ask("abandon", uri=self._uri, handle=self._handle)


def _made_with(ledger: Ledger) -> dict[str, Any]:
    return {
        "ensemble": ledger.ensemble,
        "write": ledger.write,
        "ack": ledger.ack,
        "digest": ledger.digest,
        "password": _text(ledger.password),
        "custom": {key: _text(value) for key, value in ledger.custom.items()},
        "entries": ledger.entries,
        "sizes": list(ledger.sizes),
        "seed": ledger.seed,
    }


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read(ledger: dict[str, Any]) -> LedgerRead:
    return LedgerRead(
        ledger_id=ledger["ledger_id"],
        error=ledger.get("error"),
        state=ledger.get("state", ""),
        entries=ledger.get("entries", 0),
        bytes=ledger.get("bytes", 0),
        length=ledger.get("length", 0),
        sha256=ledger.get("sha256", ""),
        quorum=tuple(ledger.get("quorum", ())),
        custom={key: base64.b64decode(value) for key, value in ledger.get("custom", {}).items()},
        segments={int(first): tuple(bookies) for first, bookies in ledger.get("segments", {}).items()},
    )
