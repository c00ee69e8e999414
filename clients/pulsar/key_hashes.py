"""Partition of a topic that producers choose for a key. Each client library has a hash of its own by default."""

from __future__ import annotations

from functools import lru_cache

from models.scalable_topic.copies import KeyHash
from models.segments.layout import key_hash

_MASK_64 = (1 << 64) - 1
_MASK_32 = (1 << 32) - 1
# Java's clients drop the sign.
_POSITIVE = 0x7FFF_FFFF
# Of Boost's hash for bytes, since 1.82.
_STEP = 0x9E3779B97F4A7C15
_FACTOR = _STEP * _STEP & _MASK_64
_WORD = 8


@lru_cache(maxsize=1 << 16)
def partition_of(key: str, partitions: int, scheme: KeyHash) -> int | None:
    """Return the partition of a key; None where producers do not count it as one, and take any partition.

    Args:
        key: of the message; where it is bytes, as Base64, as it is stored.
        partitions: of the topic.
        scheme: the producers' hash.
    """
    match scheme:
        case KeyHash.MURMUR3:
            return (key_hash(key) & _POSITIVE) % partitions
        case KeyHash.JAVA:
            return java_hash(key) % partitions
        case KeyHash.CPP:
            return cpp_hash(key) % partitions if key else None


def java_hash(key: str) -> int:
    """Return `JavaStringHash`, the default of Java's producers: `String.hashCode` without its sign."""
    hash_ = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hash_ = (31 * hash_ + (units[at] << 8) + units[at + 1]) & _MASK_32
    return hash_ & 0x7FFF_FFFF


def cpp_hash(key: str) -> int:
    """Return `BoostHash`, the default of producers in C++, Python and Node.js, built with Boost 1.82 or newer."""
    data = key.encode()
    step = _multiplied(_STEP, _FACTOR)
    hash_ = step ^ len(data)
    whole = len(data) - len(data) % _WORD
    for at in range(0, whole, _WORD):
        step = (step + _STEP) & _MASK_64
        hash_ ^= _multiplied(int.from_bytes(data[at : at + _WORD], "little") + step & _MASK_64, _FACTOR)
    step = (step + _STEP) & _MASK_64
    hash_ ^= _multiplied(_rest(data[whole:]) + step & _MASK_64, _FACTOR)
    return _multiplied(hash_ + step & _MASK_64, _FACTOR) & 0x7FFF_FFFF


def _rest(data: bytes) -> int:
    """Return the last bytes, fewer than eight, as one number."""
    size = len(data)
    if not size:
        return 0
    if size >= 4:
        return (int.from_bytes(data[-4:], "little") << (size - 4) * 8) | int.from_bytes(data[:4], "little")
    first, second = (size - 1) & 2, size >> 1
    return data[first] << first * 8 | data[second] << second * 8 | data[0]


def _multiplied(first: int, other: int) -> int:
    product = first * other
    return (product & _MASK_64) ^ (product >> 64)
