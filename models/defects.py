"""Known defects of Pulsar, BookKeeper and Oxia that matter during a migration, from `defects.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter

from models.base import Frozen
from models.releases import Release

_DATA = Path(__file__).with_name("defects.toml")
PAGE = "docs/known_defects.md"
"""The page that is generated from the data."""


class Product(StrEnum):
    """Product that has the defect."""

    PULSAR = "pulsar"
    BOOKKEEPER = "bookkeeper"
    OXIA = "oxia"

    @property
    def display(self) -> str:
        """Return the name for sentences that people read."""
        return {"pulsar": "Pulsar", "bookkeeper": "BookKeeper", "oxia": "Oxia"}[self]


class Defect(Frozen):
    """One defect; `defects.toml` explains the fields.

    Attributes:
        since: first affected releases, one of each affected line; empty for every release before the repair.
        fixed_in: first repaired releases, one of each line; empty if no repair is known.
        setting, values: affects brokers only where this setting contains one of these values; empty for all brokers.
        migrations: kinds that it concerns, each with a mode (`kind/mode`) where it concerns that alone.
        refused: those of them in which it can lose data.
    """

    id: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    product: Product
    since: tuple[str, ...] = ()
    fixed_in: tuple[str, ...]
    setting: str = ""
    values: tuple[str, ...] = ()
    symptom: str
    why: str
    reference: str
    migrations: tuple[str, ...]
    refused: tuple[str, ...] = ()
    advice: str

    def affects(self, release: Release, settings: Mapping[str, str] | None = None) -> bool:
        """Return whether brokers of a release have this defect.

        Args:
            release: of the broker.
            settings: of the broker, by their names in `broker.conf`; None if they are not known, which rules nothing
                out.
        """
        if self.product is not Product.PULSAR or (self.since and not release.is_at_least(*self.since)):
            return False
        if self.setting and settings is not None:
            setting = str(settings.get(self.setting, ""))
            if not any(value in setting for value in self.values):
                return False
        newest = max((_line(first) for first in self.fixed_in), default=None)
        return not release.is_at_least(*self.fixed_in) and (newest is None or release.line <= newest)

    def concerns(self, migration: str) -> bool:
        """Return whether it matters in a migration.

        Args:
            migration: its kind, or `kind/mode`.
        """
        return _among(migration, self.migrations)

    def refuses(self, migration: str) -> bool:
        """Return whether it can lose data in a migration; `migration` is that of `concerns`."""
        return _among(migration, self.refused)

    def __str__(self) -> str:
        return f"{self.id} ({self.reference.partition(';')[0]}): {self.symptom} {self.advice}"


@cache
def known_defects() -> tuple[Defect, ...]:
    """Return all defects, in the order of the data.

    Raises:
        ValueError: the data are wrong, or two defects have the same id.
    """
    with _DATA.open("rb") as data:
        defects = TypeAdapter(tuple[Defect, ...]).validate_python(tomllib.load(data)["defect"])
    if len({defect.id for defect in defects}) < len(defects):
        raise ValueError(f"{_DATA.name} names a defect twice")
    return defects


def has_defect(release: Release, name: str) -> bool:
    """Return whether a release has a defect, for what works around it.

    Args:
        release: of the brokers.
        name: the defect's id.

    Raises:
        ValueError: there is no such defect.
    """
    for defect in known_defects():
        if defect.id == name:
            return defect.affects(release)
    raise ValueError(f"unknown defect {name!r}; {_DATA.name} has the ids")


def defects_of(migration: str, product: Product) -> list[Defect]:
    """Return the defects of a product that matter in a migration; `migration` is that of `Defect.concerns`."""
    return [defect for defect in known_defects() if defect.product is product and defect.concerns(migration)]


def unknown_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids that belong to no known defect."""
    existing = {defect.id for defect in known_defects()}
    return [text for text in ids if text not in existing]


def _among(migration: str, kinds: Iterable[str]) -> bool:
    return migration in kinds or migration.partition("/")[0] in kinds


def _line(release: str) -> tuple[int, int]:
    major, minor, _ = map(int, release.split("."))
    return major, minor
