"""Protobuf's variable-length numbers, for messages that are split and joined byte for byte."""

from __future__ import annotations


def encode_varint(number: int) -> bytes:
    """Encode a number that is not negative, seven bits to a byte, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
