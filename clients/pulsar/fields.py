"""Protobuf messages as lists of their fields, so that one can be changed and all others keep their bytes and order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clients.errors import StoreProtocolError
from clients.varint import encode_varint


class Field(NamedTuple):
    """A field as it is in a message.

    Attributes:
        number: its number.
        raw: all its bytes, tag and length included.
        content: what it holds if it is a string, bytes or a message, else None.
    """

    number: int
    raw: bytes
    content: bytes | None


def split(message: bytes) -> list[Field]:
    """Return the fields of a message in their order.

    Raises:
        StoreProtocolError: it is not a message.
    """
    fields: list[Field] = []
    offset = 0
    while offset < len(message):
        start = offset
        tag, offset = _read_varint(message, offset)
        content: bytes | None = None
        match tag & 7:
            case 0:
                _, offset = _read_varint(message, offset)
            case 1:
                offset += 8
            case 2:
                size, offset = _read_varint(message, offset)
                content = message[offset : offset + size]
                offset += size
            case 5:
                offset += 4
            case kind:
                raise StoreProtocolError(f"no protobuf message: it has a field of type {kind}")
        if offset > len(message):
            raise StoreProtocolError("no protobuf message: its last field is cut off")
        fields.append(Field(tag >> 3, message[start:offset], content))
    return fields


def join(fields: Iterable[Field]) -> bytes:
    """Return the message of these fields."""
    return b"".join(field.raw for field in fields)


def bytes_field(number: int, content: bytes) -> Field:
    """Return a field that holds a string, bytes or a message."""
    return Field(number, encode_varint(number << 3 | 2) + encode_varint(len(content)) + content, content)


def _read_varint(message: bytes, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it."""
    number = shift = 0
    while offset < len(message) and shift < 70:
        byte = message[offset]
        number |= (byte & 0x7F) << shift
        offset += 1
        shift += 7
        if byte < 0x80:
            return number, offset
    raise StoreProtocolError("no protobuf message: a number in it has no end")
