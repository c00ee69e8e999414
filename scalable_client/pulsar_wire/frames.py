"""Frames: size, size of the command, command, and after some commands a message.

Sizes have 4 bytes, big-endian. Source: "Pulsar binary protocol specification", "Framing".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from pulsar_wire.errors import ProtocolViolation
from pulsar_wire.pulsar_api_pb2 import BaseCommand, CommandProducerSuccess

SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")
# Enough for commands, and for messages up to a broker's default limit of 5 MB.
_LARGEST = 64 << 20
# Whatever a broker announces: four bytes from outside must not decide how much memory is used.
_LIMIT = 128 << 20
# Bytes of a frame in addition to its message: the command and the broker's entry metadata.
_OVERHEAD = 64 << 10

Command = Message
"""The type of a command: one of the fields of `BaseCommand`."""

_FIELD_BY_TYPE = {field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None}
_TYPE_BY_NAME = {
    field.message_type.full_name: field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def _have_text(fields: Iterable[Any]) -> bool:
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        or (field.message_type is not None and _have_text(field.message_type.fields))
        for field in fields
    )


# Messages and receipts, of which very many come, have no text.
_TYPES_WITH_TEXT = frozenset(
    field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and _have_text(field.message_type.fields)
)


class Frame(NamedTuple):
    """A frame that arrived.

    Attributes:
        command: the field of `BaseCommand` that is set; None where this client does not know its type.
        body: the message after it, or empty.
    """

    command: Command | None
    body: bytes


def encode(command: Command, body: bytes = b"") -> bytes:
    """Return the frame of a command (a field of `BaseCommand`) and a message."""
    number = _TYPE_BY_NAME[command.DESCRIPTOR.full_name]
    base = BaseCommand(type=number)
    getattr(base, _FIELD_BY_TYPE[number]).CopyFrom(command)
    data = base.SerializeToString()
    return b"".join((_HEAD.pack(SIZE.size + len(data) + len(body), len(data)), data, body))


def decode(data: bytes) -> Frame:
    """Return the command and the message of a frame without its size.

    Raises:
        ProtocolViolation: the data are not a valid frame.
    """
    if len(data) < SIZE.size:
        raise ProtocolViolation(f"a frame of {len(data)} bytes is too short")
    end = SIZE.size + SIZE.unpack_from(data)[0]
    if end > len(data):
        raise ProtocolViolation("a command is longer than its frame")
    try:
        base = BaseCommand.FromString(data[SIZE.size : end])
    except (DecodeError, UnicodeDecodeError) as cause:
        raise ProtocolViolation(f"a frame does not contain a command of Pulsar: {cause}") from cause
    # protobuf does not check that required fields are set.
    if not base.HasField("type"):
        raise ProtocolViolation("a command has no type")
    field = _FIELD_BY_TYPE.get(base.type)
    if field is None:
        return Frame(None, b"")
    if not base.HasField(field):
        raise ProtocolViolation(f"a command of type {base.type} has another field")
    command: Command = getattr(base, field)
    if base.type in _TYPES_WITH_TEXT:
        _require_text(command)
    # -1 means that no message is stored; the next id after a lower number does not fit into a command.
    if isinstance(command, CommandProducerSuccess) and command.last_sequence_id < -1:
        raise ProtocolViolation(f"the last sequence id of {command.producer_name} is {command.last_sequence_id}")
    return Frame(command, data[end:])


def _require_text(message: Message) -> None:
    """Raise an error if a text is not UTF-8: protobuf then returns bytes, which no caller expects."""
    for field, value in message.ListFields():
        values: Iterable[Any] = [value] if isinstance(value, str | bytes | Message) else value
        if field.type == FieldDescriptor.TYPE_STRING:
            if any(isinstance(text, bytes) for text in values):
                raise ProtocolViolation(f"{field.full_name} is not UTF-8")
        elif field.message_type is not None:
            for element in values:
                _require_text(element)


class FrameBuffer:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._largest = _LARGEST

    def allow(self, message: int) -> None:
        """Accept messages of this many bytes, which the broker announced, up to the limit of this client."""
        self._largest = min(max(_LARGEST, message + _OVERHEAD), _LIMIT)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the frames that are complete, without their sizes.

        Raises:
            ProtocolViolation: a frame exceeds the largest size.
        """
        received = self._received
        received += data
        frames: list[bytes] = []
        at = 0
        while len(received) - at >= SIZE.size:
            size = SIZE.unpack_from(received, at)[0]
            if size > self._largest:
                raise ProtocolViolation(
                    f"the broker announced a frame of {size} bytes; at most {self._largest} are allowed"
                )
            end = at + SIZE.size + size
            if end > len(received):
                break
            frames.append(bytes(received[at + SIZE.size : end]))
            at = end
        del received[:at]
        return frames
