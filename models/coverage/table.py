"""The coverage table: each feature of a Pulsar cluster, and what becomes of it in each migration.

`features.toml` has the features, each with what shows that it is in use; `without_effect.toml` has the names that do
not matter. What is in neither is unknown, and a migration refuses it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import Field

from models.base import Frozen

PAGE: Final = "docs/coverage.md"
"""The page that is generated from the table."""
UNKNOWN_FEATURE: Final = "UNKNOWN_FEATURE"
"""Code of the blocker for what the table does not know."""
COLUMNS: Final = ("metadata-store", "bookie-cluster", "blue-green", "scalable-topic", "topic-controller")
"""The kinds that have a column."""

_SHARED: Final = {"scalable-namespace": "scalable-topic", "scalable-operation": "scalable-topic"}
_CELL = re.compile(r"(?P<outcome>\w+)(?P<codes>( \w+(, \w+)*)?): (?P<text>.+)")
_NOTHING: Final = ("", "false", "0", "-1", "0.0", "[]", "{}", "null", "None", "Optional.empty")
_FOLDER = Path(__file__).parent


class ItemKind(StrEnum):
    """Source of information that shows a feature."""

    SETTING = "setting"
    POLICY = "policy"
    LOCAL_POLICY = "local-policy"
    TENANT = "tenant"
    TOPIC_POLICY = "topic-policy"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    CURSOR = "cursor"
    PATH = "path"

    def item(self, name: str) -> str:
        """Return the item of a name, `kind:name`."""
        return f"{self}:{name}"


class Outcome(StrEnum):
    """Outcome of a feature in a migration."""

    CARRIED = "carried"
    UNTOUCHED = "untouched"
    DECISION = "decision"
    REFUSED = "refused"


class Cell(NamedTuple):
    """Outcome of a feature in one migration, with the reason.

    Attributes:
        outcome: carried, untouched, refused, or a decision of the operator.
        codes: of blockers, in capitals, or fields of the input; empty where the outcome needs no check, or where the
            census itself refuses or asks.
        text: how or why, in a sentence without its first capital.
    """

    outcome: Outcome
    codes: tuple[str, ...]
    text: str

    @property
    def by_census(self) -> bool:
        """Return whether the census itself refuses the feature, or asks about it."""
        return self.outcome in (Outcome.REFUSED, Outcome.DECISION) and not self.codes


class Feature(Frozen):
    """A row of the table; `features.toml` explains the fields.

    Attributes:
        cells: what becomes of it, by kind of migration.
    """

    id: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    area: str
    title: str
    items: tuple[str, ...] = ()
    unseen: str = ""
    reference: str = ""
    cure: str = ""
    cells: Mapping[str, Cell]

    def cell(self, migration: str) -> Cell:
        """Return what becomes of it in a migration.

        Args:
            migration: its kind, or `kind/mode`.
        """
        return self.cells[column_of(migration)]


class Coverage(NamedTuple):
    """The whole table.

    Attributes:
        features: in the order of the data.
        of_item: the feature that each item shows.
        without_effect: items that are known, and do not matter.
        unset: values of items that mean that the feature is not in use.
    """

    features: tuple[Feature, ...]
    of_item: Mapping[str, Feature]
    without_effect: frozenset[str]
    unset: Mapping[str, tuple[Any, ...]]

    def is_set(self, item: str, value: object) -> bool:
        """Return whether a value of an item means that something is in use."""
        is_nothing = value in (None, False, [], {}, ()) or str(value) in _NOTHING
        return not is_nothing and value not in self.unset.get(item, ())


def column_of(migration: str) -> str:
    """Return the kind whose column holds for a migration; `migration` is a kind, or `kind/mode`."""
    kind = migration.partition("/")[0]
    return _SHARED.get(kind, kind)


@cache
def coverage() -> Coverage:
    """Return the table.

    Raises:
        ValueError: the data are wrong.
    """
    data = tomllib.loads((_FOLDER / "features.toml").read_text("utf-8"))
    features = tuple(_feature(row, data["texts"]) for row in data["feature"])
    of_item = {item: feature for feature in features for item in feature.items}
    listed = tomllib.loads((_FOLDER / "without_effect.toml").read_text("utf-8"))
    without_effect = frozenset(ItemKind(kind).item(name) for kind, names in listed.items() for name in names.split())
    _check(features, of_item, without_effect)
    return Coverage(features, of_item, without_effect, {item: tuple(values) for item, values in data["unset"].items()})


def _feature(row: dict[str, Any], texts: Mapping[str, str]) -> Feature:
    cells = {kind: _cell(texts.get(row[kind], row[kind])) for kind in COLUMNS}
    return Feature(cells=cells, **{name: value for name, value in row.items() if name not in COLUMNS})


def _cell(text: str) -> Cell:
    match = _CELL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an outcome with its reason")
    codes = tuple(filter(None, match["codes"].strip().split(", ")))
    return Cell(Outcome(match["outcome"]), codes, match["text"])


def _check(features: tuple[Feature, ...], of_item: Mapping[str, Feature], without_effect: frozenset[str]) -> None:
    names = [feature.id for feature in features]
    items = [item for feature in features for item in feature.items]
    twice = {name for name in (*names, *items) if (*names, *items).count(name) > 1} | (of_item.keys() & without_effect)
    if twice:
        raise ValueError(f"the table names {', '.join(sorted(twice))} twice")
    for item in items:
        ItemKind(item.partition(":")[0])
    if bare := [feature.id for feature in features if not feature.items and not feature.unseen]:
        raise ValueError(f"nothing shows {', '.join(bare)}, and no reason says why")
    for feature in features:
        if not feature.cure and any(cell.by_census for cell in feature.cells.values()):
            raise ValueError(f"{feature.id} is refused or asked about without a cure")
