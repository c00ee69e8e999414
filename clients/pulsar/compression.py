"""How Pulsar packs what it stores, messages and its own metadata alike.

LZ4 and Snappy are raw blocks, ZLIB is a stream that was flushed and not always ended.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import partial

import cramjam

from clients.errors import StoreProtocolError

LARGEST = 256 << 20
"""Bytes of the largest value that is decompressed: a producer, or a writer of the store, chooses the claimed size."""


class Compression(IntEnum):
    """How a value is packed; the numbers are Pulsar's."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


def decompressed(compression: Compression, body: bytes, size: int) -> bytes:
    """Return the uncompressed content of a value.

    Args:
        compression: how it is packed.
        body: the packed value.
        size: of what it holds, as it says itself.

    Raises:
        StoreProtocolError: it is damaged, or larger than `LARGEST`.
    """
    if not 0 <= size <= LARGEST:
        raise StoreProtocolError(
            f"a value compressed with {compression.name} claims to hold {size:,} bytes; at most {LARGEST:,} are read"
        )
    try:
        data = _decompressed(compression, body, size)
    except (cramjam.DecompressionError, zlib.error) as cause:
        raise StoreProtocolError(f"a value compressed with {compression.name} is damaged: {cause}") from cause
    # A value that was cut off could still parse, with a part missing.
    if len(data) != size:
        raise StoreProtocolError(
            f"a value compressed with {compression.name} holds {len(data)} bytes where {size} are due"
        )
    return data


def inflated(body: bytes) -> bytes:
    """Return the content of a ZLIB stream that does not say its size.

    Raises:
        StoreProtocolError: it is damaged, or larger than `LARGEST`.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, LARGEST + 1)
    except zlib.error as cause:
        raise StoreProtocolError(f"a value compressed with ZLIB is damaged: {cause}") from cause
    if len(data) > LARGEST or not stream.eof:
        raise StoreProtocolError(f"a value compressed with ZLIB is cut off, or holds more than {LARGEST:,} bytes")
    return data


def compressed(compression: Compression, body: bytes) -> bytes:
    """Return a value, packed; other bytes than Pulsar's own code makes, which all clients can read."""
    match compression:
        case Compression.NONE:
            return body
        case Compression.LZ4:
            return bytes(cramjam.lz4.compress_block(body, store_size=False))
        case Compression.ZLIB:
            return zlib.compress(body)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(body))
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(body))


def _decompressed(compression: Compression, body: bytes, size: int) -> bytes:
    match compression:
        case Compression.NONE:
            return body
        case Compression.LZ4:
            return _into(partial(cramjam.lz4.decompress_block_into, output_len=size), body, size)
        case Compression.ZLIB:
            # `zlib.decompress` wants an end, which Pulsar's stream lacks. One byte more than claimed shows a wrong
            # size.
            return zlib.decompressobj().decompress(body, size + 1)
        case Compression.ZSTD:
            return _into(cramjam.zstd.decompress_into, body, size)
        case Compression.SNAPPY:
            return _into(cramjam.snappy.decompress_raw_into, body, size)


def _into(decompress: Callable[[bytes, bytearray], int], body: bytes, size: int) -> bytes:
    """Return the content of a value from a buffer of its claimed size, which 2 kB that hold 64 MB cannot exceed."""
    buffer = bytearray(size)
    return bytes(memoryview(buffer)[: decompress(body, buffer)])
