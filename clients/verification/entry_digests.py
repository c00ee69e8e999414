"""Digests of entries, by which a reader knows a damaged copy."""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from typing import cast

import google_crc32c

from clients.errors import StoreUnsupported

_IDS = struct.Struct(">qq")
_HEADER = 32
"""Bytes of ledger, entry, last confirmed entry and length, before the digest."""

_CONFIRMED = slice(16, 24)
_SIZES = {"CRC32C": 4, "CRC32": 8, "HMAC": 20, "DUMMY": 0}

_extend = cast("Callable[[int, bytes], int]", google_crc32c.extend)  # pyright: ignore[reportUnknownMemberType]


def is_intact(body: bytes, ledger_id: int, entry: int, digest: str, password: bytes) -> bool:
    """Return whether an entry, as a bookie stores it, is the one that it should be, and undamaged.

    Raises:
        StoreUnsupported: the type of the digest is not known.
    """
    size = _SIZES.get(digest)
    if size is None:
        raise StoreUnsupported(f"ledger {ledger_id} has digests of the unknown type {digest}")
    if len(body) < _HEADER + size or _IDS.unpack_from(body) != (ledger_id, entry):
        return False
    header, stored, data = body[:_HEADER], body[_HEADER : _HEADER + size], body[_HEADER + size :]
    return stored == _digest(digest, password, header, data)


def read_content(body: bytes, digest: str) -> bytes:
    """Return an intact entry without the number of the last confirmed one, and without the digest over it.

    BookKeeper's recovery adds the last entries of a ledger again with another number, so that bookies may have either.
    """
    return body[: _CONFIRMED.start] + body[_CONFIRMED.stop : _HEADER] + body[_HEADER + _SIZES[digest] :]


def _digest(digest: str, password: bytes, header: bytes, data: bytes) -> bytes:
    match digest:
        case "CRC32C":
            return _extend(_extend(0, header), data).to_bytes(4)
        case "CRC32":
            return zlib.crc32(data, zlib.crc32(header)).to_bytes(8)
        case "HMAC":
            key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()
            return hmac.digest(key, header + data, "sha1")
        case _:
            return b""
