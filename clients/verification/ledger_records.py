"""Metadata of the ledgers of a BookKeeper cluster, read with kazoo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from clients.bookkeeper.ledger_metadata_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from clients.errors import StoreProtocolError, StoreUnsupported
from clients.verification.kazoo_records import KazooRecords
from clients.verification.records import Withheld

_LEDGER = re.compile(r"((?:/\d+)*)/L(\d+)")
_HEADER = b"BookieMetadataFormatVersion\t"
_PROTOCOL = "bookie-rpc"


class Fragment(NamedTuple):
    """Entries that are on the same bookies, from `first_entry` on."""

    first_entry: int
    bookies: tuple[str, ...]


class LedgerNode(NamedTuple):
    """Metadata of a ledger.

    Attributes:
        is_closed: it cannot grow any more.
        last_entry: id of its last entry; -1 if it is empty, or not closed.
        length: bytes of the data of all entries.
        digest: of the entries: `CRC32`, `HMAC`, `CRC32C` or `DUMMY`.
        password: with which an HMAC is made.
        custom: custom metadata.
        write_quorum: replicas of an entry.
        fragments: ascending by first entry.
    """

    is_closed: bool
    last_entry: int
    length: int
    digest: str
    password: bytes
    custom: tuple[tuple[str, bytes], ...]
    write_quorum: int
    fragments: tuple[Fragment, ...]

    def replicas(self, entry: int) -> tuple[str, ...]:
        """Return the bookies that have an entry, in the order in which clients ask them."""
        bookies = next(each.bookies for each in reversed(self.fragments) if each.first_entry <= entry)
        return tuple(bookies[(entry + number) % len(bookies)] for number in range(self.write_quorum))


class LedgerRecords(KazooRecords):
    """Reads the metadata of ledgers beneath the root of its address, and cannot write."""

    def ids(self) -> dict[int, str]:
        """Return the path of each ledger, by id."""
        return {ledger_id: path for paths in self.paths("", "") for ledger_id, path in _ledgers(paths)}

    def ledgers(self, paths: list[str]) -> list[LedgerNode | None]:
        """Return the metadata of ledgers; None for those that do not exist any more.

        Raises:
            StoreError: a node cannot be read, or is not the metadata of a ledger.
        """
        ledgers: list[LedgerNode | None] = []
        for path, record in zip(paths, self.read(paths), strict=True):
            if isinstance(record, Withheld):
                raise StoreProtocolError(record.reason, server=str(self.url))
            ledgers.append(None if record is None else ledger_of(record.value, path))
        return ledgers

    def bookies(self) -> dict[str, tuple[str, int]]:
        """Return host and port of each registered bookie, by its id."""
        addresses: dict[str, tuple[str, int]] = {}
        for folder in ("/available/readonly", "/available"):
            for bookie in self.children(folder):
                if bookie != "readonly" and (node := self.get(f"{folder}/{bookie}")):
                    addresses[bookie] = _address(bookie, node[0])
        return addresses


def _ledgers(paths: list[str]) -> Iterator[tuple[int, str]]:
    """Yield id and path of each path that is a ledger in one of BookKeeper's layouts."""
    for path in paths:
        if match := _LEDGER.fullmatch(path):
            yield int(match[1].replace("/", "") + match[2]), path


def ledger_of(value: bytes, path: str) -> LedgerNode:
    """Read the node of a ledger.

    Raises:
        StoreUnsupported: it has a format that is not known.
        StoreProtocolError: it is not the metadata of a ledger.
    """
    line, _, body = value.partition(b"\n")
    form = LedgerMetadataFormat()
    try:
        match line.removeprefix(_HEADER):
            case b"3":
                # The length before the message is a varint; what follows it is the message and nothing else.
                start = next(index for index, byte in enumerate(body) if byte < 0x80) + 1
                form.ParseFromString(body[start:])
            case b"2":
                text_format.Parse(body, form)
            case version:
                raise StoreUnsupported(f"{path} has metadata of the unknown version {version[:20]!r}")
    except (DecodeError, text_format.ParseError, StopIteration) as error:
        raise StoreProtocolError(f"{path} is not the metadata of a ledger: {error}") from error
    fragments = sorted(Fragment(segment.firstEntryId, tuple(segment.ensembleMember)) for segment in form.segment)
    if not fragments or fragments[0].first_entry or not all(each.bookies for each in fragments):
        raise StoreProtocolError(f"{path} names no bookies for its first entries")
    return LedgerNode(
        is_closed=form.state == LedgerMetadataFormat.CLOSED,
        last_entry=form.lastEntryId if form.HasField("lastEntryId") else -1,
        length=form.length,
        digest=LedgerMetadataFormat.DigestType.Name(form.digestType),
        password=form.password,
        custom=tuple(sorted((each.key, each.value) for each in form.customMetadata)),
        write_quorum=form.quorumSize,
        fragments=tuple(fragments),
    )


def _address(bookie: str, value: bytes) -> tuple[str, int]:
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError as error:
        raise StoreProtocolError(f"the registration of bookie {bookie} cannot be read: {error}") from error
    for endpoint in info.endpoints:
        if endpoint.protocol == _PROTOCOL:
            return endpoint.host, endpoint.port
    # Bookies before BookKeeper 4.11 are called by their address, and register nothing.
    host, _, port = bookie.rpartition(":")
    if not host or not port.isdecimal():
        raise StoreProtocolError(f"bookie {bookie} has not registered an address")
    return host.strip("[]"), int(port)
