"""Bookie cluster to which a ledger is attributed (PIP-477, "Per-Ledger Attribution Encoding").

Only the one property changes: every other byte of a node stays, unknown fields and their order included (I9, I10).
No supported release knows properties of schema positions: brokers drop them with the next schema that they store.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from clients.errors import StoreProtocolError
from clients.pulsar.fields import Field, bytes_field, join, split
from clients.pulsar.formats_pb2 import KeyValue, SchemaLocator, SchemaPosition
from clients.pulsar.managed_ledgers import parse

ATTRIBUTION = "_pulsar.bookieClusterName"
"""The property's key."""

_KEY = ATTRIBUTION.encode()
#: Numbers of fields: SchemaLocator.{info, index}, IndexEntry.position, PositionInfo.properties,
#: KeyValue.{key, value}.
_INFO, _INDEX, _POSITION, _POSITION_PROPERTIES, _PROPERTY_KEY, _PROPERTY_VALUE = 1, 2, 2, 3, 1, 2


def attribution(properties: Iterable[KeyValue]) -> str | None:
    """Return the bookie cluster that properties name, None if they name none."""
    return next((property_.value for property_ in properties if property_.key == ATTRIBUTION), None)


def set_schema_attribution(
    value: bytes, old: str | None, new: str | None, *, absent: bool = True, ledgers: Container[int] | None = None
) -> bytes | None:
    """Return a schema's node, with all versions that are on one bookie cluster said to be on another.

    Changed are the newest version and every entry of the index that is attributed to `old`; others are left alone.

    Args:
        value: the node (SchemaLocator).
        old: the cluster that they are moved from; None for those without an attribution only.
        new: the cluster that they are moved to; None takes the attribution away.
        absent: whether those without an attribution are moved as well.
        ledgers: only versions that lie in one of these are moved; None for all.

    Returns:
        None if nothing is to be changed.

    Raises:
        StoreProtocolError: it is not a schema's node.
    """

    def position(fields: list[Field]) -> list[Field] | None:
        if ledgers is not None and _ledger(fields) not in ledgers:
            return None
        current = _attribution(fields, _POSITION_PROPERTIES)
        moved = (absent or old is None) if current is None else current == old
        return _stamped(fields, _POSITION_PROPERTIES, new) if moved and current != new else None

    def entry(fields: list[Field]) -> list[Field] | None:
        return _inside(fields, (_POSITION,), position)

    # Only to refuse what is not a schema's node: written by protobuf itself, other bytes than the attribution could
    # change (I10).
    parse(SchemaLocator, value)
    changed = _inside(split(value), (_INFO, _INDEX), entry)
    return join(changed) if changed else None


def _inside(
    fields: list[Field], numbers: tuple[int, ...], change: Callable[[list[Field]], list[Field] | None]
) -> list[Field] | None:
    """Return the fields, with the messages in those of these numbers changed; None if none was."""
    result: list[Field] = []
    changed = False
    for field in fields:
        inner = change(_message(field)) if field.number in numbers else None
        changed = changed or inner is not None
        result.append(field if inner is None else bytes_field(field.number, join(inner)))
    return result if changed else None


def _message(field: Field) -> list[Field]:
    if field.content is None:
        raise StoreProtocolError(f"field {field.number} should be a message and is a number; is this a schema's node?")
    return split(field.content)


def _ledger(fields: list[Field]) -> int:
    return parse(SchemaPosition, join(fields)).ledgerId


def _is_attribution(field: Field, number: int) -> bool:
    return field.number == number and any(
        field_.number == _PROPERTY_KEY and field_.content == _KEY for field_ in _message(field)
    )


def _attribution(fields: list[Field], number: int) -> str | None:
    for field in fields:
        if _is_attribution(field, number):
            values = [inner.content for inner in _message(field) if inner.number == _PROPERTY_VALUE]
            # Protobuf takes the last one of a field that comes twice.
            return (values[-1] or b"").decode(errors="replace") if values else ""
    return None


def _stamped(fields: list[Field], number: int, new: str | None) -> list[Field]:
    """Return the fields with the attribution set in its place, after the other properties, or taken out."""
    if new is None:
        return [field for field in fields if not _is_attribution(field, number)]
    value = bytes_field(_PROPERTY_VALUE, new.encode())
    fresh = bytes_field(number, join((bytes_field(_PROPERTY_KEY, _KEY), value)))
    if _attribution(fields, number) is not None:
        return [fresh if _is_attribution(field, number) else field for field in fields]
    # Where an encoder that sorts by numbers would put it.
    place = max((index + 1 for index, field in enumerate(fields) if field.number <= number), default=0)
    return [*fields[:place], fresh, *fields[place:]]
