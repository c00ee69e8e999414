"""Plain values in commands."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_wire.pulsar_api_pb2 import KeyValue

_SIGN = 1 << 63


def key_values(properties: Mapping[str, str]) -> list[KeyValue]:
    """Return properties as they are sent."""
    return [KeyValue(key=key, value=value) for key, value in properties.items()]


def signed(value: int) -> int:
    """Return an unsigned number of 64 bits with its sign: brokers say -1 for a ledger or an entry that is not there."""
    return value - (_SIGN << 1) if value >= _SIGN else value


def unsigned(value: int) -> int:
    """Return the reverse of `signed`."""
    return value % (_SIGN << 1)
