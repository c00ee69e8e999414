"""Units of the numbers in results: exact in JSON, rounded with their unit in text.

A result model annotates its fields: `blocked_seconds: Seconds`, `copied_bytes: Bytes`, `copied_records: Records`. The
annotation changes nothing in validation; `describe` reads it to write `blocked 1.9 s`, `copied 1.2 GB` and
`copied 957,073 records`, and the model's JSON schema carries it as `unit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, get_args

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

SHOWN = 5
"""Most items of a list that a text shows."""

_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Quantity(Enum):
    """Physical quantity of a number."""

    TIME = "seconds"
    SIZE = "bytes"
    NUMBER = ""


@dataclass(frozen=True)
class Unit:
    """The unit of a number, as an annotation of a field.

    Attributes:
        quantity: time in seconds, size in bytes, or a count.
        noun: what is counted, in the plural; empty for plain numbers, times and sizes.
        per_second: a rate.
    """

    quantity: Quantity = Quantity.NUMBER
    noun: str = ""
    per_second: bool = False

    @property
    def word(self) -> str:
        """The unit as a part of field names: `seconds`, `bytes`, `records`; empty for none."""
        return self.noun or self.quantity.value

    def format(self, value: float, *, with_noun: bool = True) -> str:
        """Return the rounded number with its unit: `1.9 s`, `3 h 12 min`, `1.2 GB`, `957,073 records`, `12.4 MB/s`."""
        suffix = "/s" if self.per_second else ""
        if self.quantity is Quantity.TIME:
            return _time(value)
        if self.quantity is Quantity.SIZE:
            return f"{_size(value)}{suffix}"
        noun = self.noun if with_noun else ""
        if noun and value == 1 and not suffix:
            noun = singular(noun)
        return f"{_number(value)}{' ' if noun else ''}{noun}{suffix}"

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of the number, with its unit."""
        return {**handler(schema), "unit": f"{self.word}/s" if self.per_second else self.word or "number"}


Seconds = Annotated[float, Unit(Quantity.TIME)]
Bytes = Annotated[int, Unit(Quantity.SIZE)]
BytesPerSecond = Annotated[float, Unit(Quantity.SIZE, per_second=True)]
Count = Annotated[int, Unit()]
Records = Annotated[int, Unit(noun="records")]
RecordsPerSecond = Annotated[float, Unit(noun="records", per_second=True)]
Ledgers = Annotated[int, Unit(noun="ledgers")]
Entries = Annotated[int, Unit(noun="entries")]
Cursors = Annotated[int, Unit(noun="cursors")]
Topics = Annotated[int, Unit(noun="topics")]
Messages = Annotated[int, Unit(noun="messages")]


@dataclass(frozen=True)
class Described:
    """A field as text.

    Attributes:
        name: of the field.
        label: the name in words, without the unit: `blocked` for `blocked_seconds`; empty where the text is enough.
        text: the value, rounded, with its unit.
        is_number: the value is a number, and follows its label without a colon.
    """

    name: str
    label: str
    text: str
    is_number: bool

    def __str__(self) -> str:
        between = " " if self.is_number else ": "
        return f"{self.label}{between}{self.text}" if self.label else self.text


def describe(model: BaseModel, *, zeros: bool = True) -> list[Described]:
    """Return every field that has a value as text, in the model's order; a field's `title` replaces its label.

    Args:
        model: facts, figures or a certificate; a nested model becomes one text.
        zeros: include numbers that are zero.
    """
    return list(_fields(model, zeros=zeros, inside=False))


def format_value(value: object, unit: Unit | None = None, *, with_noun: bool = True) -> str:
    """Return a value as text: numbers with their unit, times in UTC, the first items of lists, all fields of models."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return (unit or Unit()).format(value, with_noun=with_noun)
    if isinstance(value, timedelta):
        return _time(value.total_seconds())
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, BaseModel):
        return ", ".join(map(str, describe(value)))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(item, unit)}" for name, item in value.items()) or "none"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any mapping of a model
    if isinstance(value, list | tuple | set | frozenset):
        return _items([format_value(item, unit) for item in value])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)


def unit_of(field: FieldInfo) -> Unit | None:
    """Return the unit of a field's annotation, also inside of an optional, list or map type; None without one."""
    return next(_units([*field.metadata, field.annotation]), None)


def singular(noun: str) -> str:
    """Return the singular of a plural: `entry` of `entries`."""
    return f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")


def _fields(model: BaseModel, *, zeros: bool, inside: bool) -> Iterator[Described]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None:
            continue
        unit = unit_of(field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value == 0 and not zeros:
            continue
        label = field.title or _label(name, unit)
        if isinstance(value, BaseModel):
            inner = list(_fields(value, zeros=zeros, inside=True))
            if inner:
                yield Described(name, label, ", ".join(map(str, inner)), is_number=False)
        elif inside and unit and name == unit.word:
            # `seconds` of a copy reads as "copy: …, 1.9 s".
            yield Described(name, "", format_value(value, unit), is_number)
        else:
            # A field `records` reads as "records 12", not as "records 12 records".
            text = format_value(value, unit, with_noun=unit is None or name != unit.noun)
            yield Described(name, label, text, is_number)


def _label(name: str, unit: Unit | None) -> str:
    words = name.split("_")
    if unit and unit.word in words and len(words) > 1:
        words.remove(unit.word)
    return " ".join(words)


def _units(annotations: list[Any]) -> Iterator[Unit]:
    for annotation in annotations:
        if isinstance(annotation, Unit):
            yield annotation
        else:
            yield from _units([*get_args(annotation)])


def _items(texts: list[str]) -> str:
    more = f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else ""
    between = "; " if any(", " in text for text in texts) else ", "
    return between.join(texts[:SHOWN]) + more if texts else "none"


def _time(seconds: float) -> str:
    if abs(seconds) < 60 and isinstance(seconds, int):
        return f"{seconds} s"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms" if abs(seconds) >= 0.0005 else "0 s"
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    # Two units are exact enough to read: 3 h 12 min.
    whole = round(seconds)
    for index, (unit, size) in enumerate(_TIMES[:-1]):
        if whole >= size:
            smaller_unit, smaller_size = _TIMES[index + 1]
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def _size(size: float) -> str:
    for unit, factor in _BYTES:
        # A size that rounds up to the next unit is shown in it: 999,960 is 1.0 MB.
        if abs(size) >= factor * 0.99995:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def _number(value: float) -> str:
    if isinstance(value, int) or value.is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
