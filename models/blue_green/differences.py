"""Differences between green and blue, and what provisioning created."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from models.base import Result

LONGEST_VALUE = 160
"""Characters of a value that a difference shows."""


class DifferenceKind(StrEnum):
    """Kind of a difference.

    `missing`: blue has it and green does not. `differs`: both have it with different values. `extra`: only green has
    it; it is reported and never changed. `green has messages`: a topic of green is not empty, so a subscription at its
    start would get messages that blue never had. `unsupported`: green's release does not have this policy.
    """

    MISSING = "missing"
    DIFFERS = "differs"
    EXTRA = "extra"
    GREEN_HAS_MESSAGES = "green has messages"
    UNSUPPORTED = "unsupported"


class Difference(Result):
    """A difference between both clusters, after cluster names were translated.

    Attributes:
        path: the thing that differs: `topic persistent://t/n/x: subscription s`.
        kind: kind of the difference.
        blue: value on blue, shortened.
        green: value on green, shortened; if green refused a change, also its answer.
        creatable: provisioning can make it equal: `missing` always, `differs` with `align_differences`.
        harmless: traffic can move in spite of it.
    """

    path: str
    kind: DifferenceKind
    blue: str = ""
    green: str = ""
    creatable: bool = False
    harmless: bool = False

    @property
    def blocks(self) -> bool:
        """True if traffic must not move while the difference exists."""
        return not self.harmless and self.kind is not DifferenceKind.EXTRA

    def __str__(self) -> str:
        sides = ", ".join(f"{name} {text}" for name, text in (("blue:", self.blue), ("green:", self.green)) if text)
        return f"{self.path} {self.kind.value}" + (f" ({sides})" if sides else "")


class Provisioned(Result):
    """Result of provisioning one namespace.

    Attributes:
        created: number of things that were created or changed, by kind: `topic`, `subscription`, `schema version`, …
        differences: differences that remain after both clusters were read again.
    """

    created: dict[str, int] = Field(default_factory=dict[str, int])
    differences: tuple[Difference, ...] = ()

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """Differences that keep traffic from moving."""
        return tuple(difference for difference in self.differences if difference.blocks)
