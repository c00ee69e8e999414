"""Frames: size, size of the command, command, and behind some commands a message.

Sizes have 4 bytes, big-endian. Source: "Pulsar binary protocol specification", "Framing".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from pulsar_scalable.errors import ProtocolViolation
from pulsar_scalable.wire import commands, scalable
from pulsar_scalable.wire.commands import Command
from pulsar_scalable.wire.proto import read_varint, varint

SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")
# No broker sends more, whatever its limit for messages is.
_LARGEST = 64 << 20

_TAKEN: tuple[type[Command], ...] = (
    commands.Connected,
    commands.AuthChallenge,
    commands.Ping,
    commands.Pong,
    commands.Success,
    commands.Error,
    commands.LookupTopicResponse,
    commands.ProducerSuccess,
    commands.SendReceipt,
    commands.SendError,
    commands.CloseProducer,
    commands.Deliver,
    commands.AckResponse,
    commands.ReachedEndOfTopic,
    commands.GetLastMessageIdResponse,
    commands.CloseConsumer,
    scalable.ScalableTopicUpdate,
    scalable.ScalableTopicSubscribeResponse,
    scalable.ScalableTopicAssignmentUpdate,
    scalable.WatchScalableTopicsUpdate,
)
_BY_NUMBER = {one.number: one for one in _TAKEN}


class Frame(NamedTuple):
    """What arrived.

    Attributes:
        command: None where this client does not know its type.
        body: what stands behind it, a message.
    """

    command: Command | None
    body: bytes


def encode(command: Command, body: bytes = b"") -> bytes:
    """A frame as it is sent."""
    number, data = command.number, command.encode()
    inner = b"".join((b"\x08", varint(number), varint(number << 3 | 2), varint(len(data)), data))
    return b"".join((_HEAD.pack(SIZE.size + len(inner) + len(body), len(inner)), inner, body))


def decode(data: bytes, kinds: Mapping[int, type[Command]] = _BY_NUMBER) -> Frame:
    """The frame in what follows its size.

    Args:
        data: the frame without its size.
        kinds: commands that are known, by number; those of brokers, unless something else is told.

    Raises:
        ProtocolViolation: it is none.
    """
    if len(data) < SIZE.size:
        raise ProtocolViolation(f"a frame has {len(data)} bytes")
    end = SIZE.size + SIZE.unpack_from(data)[0]
    if end > len(data):
        raise ProtocolViolation("a command ends behind its frame")
    # A command's type, then its field: what else a BaseCommand might hold belongs to other types.
    at = SIZE.size
    tag, at = read_varint(data, at)
    if tag != 8:
        raise ProtocolViolation(f"a command begins with tag {tag}")
    number, at = read_varint(data, at)
    kind = kinds.get(number)
    if kind is None:
        return Frame(None, b"")
    tag, at = read_varint(data, at)
    size, at = read_varint(data, at)
    if tag != number << 3 | 2 or at + size > end:
        raise ProtocolViolation(f"a command of type {number} has another field")
    return Frame(kind.decode(data[at : at + size]), data[end:])


class FrameBuffer:
    """Cuts what arrives into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take in what arrived; the frames that are whole now, without their sizes.

        Raises:
            ProtocolViolation: a frame would be larger than any is.
        """
        held = self._held
        held += data
        found: list[bytes] = []
        at = 0
        while len(held) - at >= SIZE.size:
            size = SIZE.unpack_from(held, at)[0]
            if size > _LARGEST:
                raise ProtocolViolation(f"a frame of {size} bytes is announced")
            end = at + SIZE.size + size
            if end > len(held):
                break
            found.append(bytes(held[at + SIZE.size : end]))
            at = end
        del held[:at]
        return found
