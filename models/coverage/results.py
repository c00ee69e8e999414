"""Features that a census found in use, as results and reports carry them."""

from __future__ import annotations

from enum import StrEnum

from models.base import Result
from models.coverage.table import Outcome

SHOWN = 10
"""How many objects a result names."""


class FeatureState(StrEnum):
    """State of a feature in a cluster."""

    IN_USE = "in use"
    NOT_IN_USE = "not in use"
    UNKNOWN = "could not be read"


class FeatureUse(Result):
    """A feature that is in use, and what becomes of it.

    Attributes:
        feature: its id in the coverage table.
        title: what it is.
        outcome: what becomes of it in this migration.
        how: how it is carried, or why it is refused or asked about.
        objects: what uses it; at most ten of `count`.
        count: how many objects use it.
        accepted: whether the operator accepted it.
    """

    feature: str
    title: str
    outcome: Outcome
    how: str
    objects: tuple[str, ...]
    count: int
    accepted: bool = False

    def __str__(self) -> str:
        marked = " (accepted)" if self.accepted else ""
        return f"{self.title}: {self.outcome}{marked}; {self.how}"
