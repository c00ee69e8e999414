"""Protocol buffers as dataclasses: each field has its number, and unknown fields are skipped.

    @dataclass(frozen=True, slots=True)
    class MessageIdData(Message):
        ledger_id: int = integer(1)
        partition: int | None = optional_integer(3)

What is None is not sent, and what was not sent is None; a plain `int`, `str` or `bytes` is always sent. Integers are
those of 64 bits with a sign; nothing that brokers count is larger.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar, cast

from pulsar_scalable.errors import ProtocolViolation

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_SMALL = [bytes([value]) for value in range(128)]

MessageT = TypeVar("MessageT", bound="Message")


def varint(value: int) -> bytes:
    """An integer of 64 bits as a varint; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= _MASK
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a place, without a sign, and the place behind it.

    Raises:
        ProtocolViolation: the data end in it, or it has more than 64 bits.
    """
    found = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found & _MASK, at
            shift += 7
            if shift > 63:
                raise ProtocolViolation("a varint has more than ten bytes")
    except IndexError:
        raise ProtocolViolation("the data end in a varint") from None


class _Spec(NamedTuple):
    """What a field's metadata say.

    Attributes:
        number: of the field.
        kind: of its values.
        repeated: whether it may come more than once.
    """

    number: int
    kind: _Kind
    repeated: bool = False


class _Kind(NamedTuple):
    """How values of a type are written and read.

    Attributes:
        wire: the wire type.
        encode: a value to what stands behind the tag, without a length.
        decode: the reverse; of an integer for varints, of bytes for all else.
    """

    wire: int
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]


def _signed(value: int) -> int:
    return value - (_SIGN << 1) if value >= _SIGN else value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as cause:
        raise ProtocolViolation(f"a text is not UTF-8: {cause}") from cause


_INTEGER = _Kind(_VARINT, varint, _signed)
_FLAG = _Kind(_VARINT, varint, bool)
_TEXT = _Kind(_BYTES, str.encode, _text)
_RAW = _Kind(_BYTES, bytes, bytes)


def _field(spec: _Spec, default: object) -> Any:
    # What is returned stands for the field's value, whose type the class names.
    return dataclasses.field(default=cast("Any", default), metadata={"proto": spec})


def integer(number: int) -> int:
    """An integer or enumeration that is always sent."""
    return _field(_Spec(number, _INTEGER), 0)


def optional_integer(number: int) -> int | None:
    """An integer or enumeration that may be missing."""
    return _field(_Spec(number, _INTEGER), None)


def flag(number: int) -> bool | None:
    """A truth value that may be missing."""
    return _field(_Spec(number, _FLAG), None)


def text(number: int) -> str:
    """A text that is always sent."""
    return _field(_Spec(number, _TEXT), "")


def optional_text(number: int) -> str | None:
    """A text that may be missing."""
    return _field(_Spec(number, _TEXT), None)


def optional_raw(number: int) -> bytes | None:
    """Bytes that may be missing."""
    return _field(_Spec(number, _RAW), None)


def nested(number: int, kind: type[MessageT]) -> MessageT | None:
    """A message in the message, which may be missing."""
    return _field(_Spec(number, _kind_of(kind)), None)


def integers(number: int) -> tuple[int, ...]:
    """Any number of integers; they are read packed as well."""
    return _field(_Spec(number, _INTEGER, repeated=True), ())


def texts(number: int) -> tuple[str, ...]:
    """Any number of texts."""
    return _field(_Spec(number, _TEXT, repeated=True), ())


def raws(number: int) -> tuple[bytes, ...]:
    """Any number of bytes."""
    return _field(_Spec(number, _RAW, repeated=True), ())


def nested_all(number: int, kind: type[MessageT]) -> tuple[MessageT, ...]:
    """Any number of messages in the message."""
    return _field(_Spec(number, _kind_of(kind), repeated=True), ())


def _kind_of(kind: type[MessageT]) -> _Kind:
    return _Kind(_BYTES, kind.encode, kind.decode)


@dataclass(frozen=True, slots=True)
class Message:
    """A message whose fields are declared with the functions of this module."""

    def encode(self) -> bytes:
        """The message as it is sent, fields in the order of their declaration."""
        parts: list[bytes] = []
        for name, tag, spec in _writers(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            for one in value if spec.repeated else (value,):
                body = spec.kind.encode(one)
                parts += (tag, body) if spec.kind.wire == _VARINT else (tag, varint(len(body)), body)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The message in some bytes; of fields that may come once, the last one counts.

        Raises:
            ProtocolViolation: they hold none.
        """
        readers, found, at = _readers(cls), cast("dict[str, Any]", {}), 0
        while at < len(data):
            tag, at = read_varint(data, at)
            raw, at = _read_raw(data, at, tag & 7)
            known = readers.get(tag >> 3)
            if known is None:
                continue
            name, spec = known
            if spec.repeated:
                found[name] = found.get(name, ()) + _values(spec.kind, tag & 7, raw)
            else:
                found[name] = _value(spec.kind, tag & 7, raw)
        return cls(**found)


def _read_raw(data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    """The value behind a tag, and the place behind it."""
    if wire == _VARINT:
        return read_varint(data, at)
    if wire == _BYTES:
        size, at = read_varint(data, at)
    elif wire in (_FIXED32, _FIXED64):
        size = 4 if wire == _FIXED32 else 8
    else:
        raise ProtocolViolation(f"a field has wire type {wire}")
    end = at + size
    if end > len(data):
        raise ProtocolViolation(f"a field of {size} bytes ends behind its message")
    return data[at:end], end


def _value(kind: _Kind, wire: int, raw: int | bytes) -> Any:
    if wire != kind.wire:
        raise ProtocolViolation(f"a field has wire type {wire} instead of {kind.wire}")
    return kind.decode(raw)


def _values(kind: _Kind, wire: int, raw: int | bytes) -> tuple[Any, ...]:
    if kind.wire == _VARINT and isinstance(raw, bytes) and wire == _BYTES:
        found: list[Any] = []
        at = 0
        while at < len(raw):
            value, at = read_varint(raw, at)
            found.append(kind.decode(value))
        return tuple(found)
    return (_value(kind, wire, raw),)


@cache
def _specs(kind: type[Message]) -> list[tuple[str, _Spec]]:
    return [(one.name, one.metadata["proto"]) for one in dataclasses.fields(kind)]


@cache
def _writers(kind: type[Message]) -> list[tuple[str, bytes, _Spec]]:
    return [(name, varint(spec.number << 3 | spec.kind.wire), spec) for name, spec in _specs(kind)]


@cache
def _readers(kind: type[Message]) -> dict[int, tuple[str, _Spec]]:
    return {spec.number: (name, spec) for name, spec in _specs(kind)}
