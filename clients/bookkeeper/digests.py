"""Digests of entries: they protect an entry against a bookie that lost or changed bytes of it.

A bookie keeps an entry's body as it was sent: ledger id, entry id, last add confirmed and length (8 bytes each,
big-endian), the digest over these 32 bytes and the data, and the data. Neither cluster nor bookie is part of it, so
that a body can be moved as it is. A bookie does not look at the digest: verify before writing, and after reading.

Source: DigestManager, CRC32CDigestManager, CRC32DigestManager, MacDigestManager of BookKeeper 4.18.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import google_crc32c

from clients.bookkeeper.metadata import DigestType

HEADER = struct.Struct(">qqqq")
IDS = struct.Struct(">qq")
"""The start of a header: ledger and entry."""
_LENGTH = struct.calcsize(">qqq")

_IDS_AND_CRC32C = struct.Struct(">qq16xI")
_DATA_AFTER_CRC32C = _IDS_AND_CRC32C.size
# The package has no type hints.
_extend = cast("Callable[[int, bytes], int]", google_crc32c.extend)  # pyright: ignore[reportUnknownMemberType]
_LENGTHS = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


class EntryCorrupt(Exception):
    """A body is not the entry that it should be; reading continues with the next replica."""


class EntryHeader(NamedTuple):
    """The header before an entry's digest.

    Attributes:
        ledger_id: its ledger.
        entry_id: its id.
        last_add_confirmed: last entry that its writer knew to be acknowledged, -1 for none.
        length: bytes of the data of all entries up to and with this one.
    """

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def read_header(body: bytes) -> EntryHeader:
    """Return the header of a body that was verified."""
    return EntryHeader(*HEADER.unpack_from(body))


def read_data(body: bytes, digest: DigestType) -> bytes:
    """Return the data of a verified body, without header and digest."""
    return body[HEADER.size + _LENGTHS[digest] :]


def read_content(body: bytes, digest: DigestType) -> tuple[bytes, memoryview]:
    """Return what a verified body says whenever it was written: the length of the ledger up to it, and its data.

    Where an entry is added again, by a recovery or to replace a lost replica, it names another one as last confirmed.
    So replicas of an entry may differ in this number, which readers of a closed ledger do not use.

    Source: LedgerRecoveryOp and LedgerFragmentReplicator of BookKeeper 4.18.
    """
    return body[_LENGTH : HEADER.size], memoryview(body)[HEADER.size + _LENGTHS[digest] :]


@lru_cache(maxsize=64)
def master_key(password: bytes) -> bytes:
    """Return the 20 bytes by which a bookie knows a ledger's writers, made from the ledger's password."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def pack_entry(
    ledger_id: int,
    entry_id: int,
    data: bytes,
    *,
    length: int,
    last_add_confirmed: int | None = None,
    digest: DigestType = DigestType.CRC32C,
    password: bytes = b"",
) -> bytes:
    """Return the body of an entry, as BookKeeper's client would send it.

    Args:
        ledger_id: its ledger.
        entry_id: its id.
        data: what it holds.
        length: bytes of the data of all entries up to and with this one.
        last_add_confirmed: by default the entry before it.
        digest: the ledger's digest type.
        password: the ledger's password.
    """
    confirmed = entry_id - 1 if last_add_confirmed is None else last_add_confirmed
    header = HEADER.pack(ledger_id, entry_id, confirmed, length)
    return header + _digest(digest, password, header, data) + data


def verify_entry(body: bytes, ledger_id: int, entry_id: int, digest: DigestType, password: bytes) -> None:
    """Check ids and digest.

    Raises:
        EntryCorrupt: they differ; the message says how.
    """
    size = _LENGTHS[digest]
    if len(body) < HEADER.size + size:
        raise EntryCorrupt(f"{len(body)} bytes are too few for an entry with digest {digest.name}")
    header = read_header(body)
    # The digest alone would pass for a valid copy of another entry.
    if header[:2] != (ledger_id, entry_id):
        raise EntryCorrupt(f"it calls itself entry {header.entry_id} of ledger {header.ledger_id}")
    data = HEADER.size + size
    if body[HEADER.size : data] != _digest(digest, password, body[: HEADER.size], body[data:]):
        raise EntryCorrupt(f"its {digest.name} digest differs")


def count_valid(
    bodies: Sequence[bytes], ledger_id: int, first_entry: int, digest: DigestType, password: bytes
) -> tuple[int, str]:
    """Return how many bodies, counted from the first, are the entries of consecutive ids that they should be.

    Returns:
        Their number, and what is wrong with the next one (empty if nothing is).
    """
    valid = _count_valid_crc32c(bodies, ledger_id, first_entry) if digest is DigestType.CRC32C else 0
    for index in range(valid, len(bodies)):
        try:
            verify_entry(bodies[index], ledger_id, first_entry + index, digest, password)
        except EntryCorrupt as cause:
            return index, str(cause)
    return len(bodies), ""


def _count_valid_crc32c(bodies: Sequence[bytes], ledger_id: int, first_entry: int) -> int:
    """Return the digest of nearly all ledgers, in as few steps for each entry as it takes."""
    extend, unpack = _extend, _IDS_AND_CRC32C.unpack_from
    entry_id = first_entry
    for body in bodies:
        if len(body) < _DATA_AFTER_CRC32C or unpack(body) != (
            ledger_id,
            entry_id,
            extend(extend(0, body[:32]), body[_DATA_AFTER_CRC32C:]),
        ):
            break
        entry_id += 1
    return entry_id - first_entry


def _digest(digest: DigestType, password: bytes, header: bytes, data: bytes) -> bytes:
    return _DIGESTS[digest](password, header, data)


def _crc32c(_password: bytes, header: bytes, data: bytes) -> bytes:
    return _extend(_extend(0, header), data).to_bytes(4)


def _crc32(_password: bytes, header: bytes, data: bytes) -> bytes:
    return zlib.crc32(data, zlib.crc32(header)).to_bytes(8)


def _hmac(password: bytes, header: bytes, data: bytes) -> bytes:
    return hmac.digest(hashlib.sha1(b"mac" + password, usedforsecurity=False).digest(), header + data, "sha1")


def _dummy(_password: bytes, _header: bytes, _data: bytes) -> bytes:
    return b""


_DIGESTS: dict[DigestType, Callable[[bytes, bytes, bytes], bytes]] = {
    DigestType.CRC32: _crc32,
    DigestType.HMAC: _hmac,
    DigestType.CRC32C: _crc32c,
    DigestType.DUMMY: _dummy,
}
