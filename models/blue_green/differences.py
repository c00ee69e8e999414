"""How green differs from blue, and what provisioning did about it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from models.base import Result

_SHOWN = 160


class DifferenceKind(StrEnum):
    """What kind of difference it is.

    `missing`: blue has it and green does not. `differs`: both have it, and not the same. `extra`: only green has it;
    that is reported and never changed. `green has messages`: a topic of green is not empty, so that subscriptions at
    its beginning would get messages that blue never had. `unsupported`: green's release does not have this policy.
    """

    MISSING = "missing"
    DIFFERS = "differs"
    EXTRA = "extra"
    GREEN_HAS_MESSAGES = "green has messages"
    UNSUPPORTED = "unsupported"


class Difference(Result):
    """One thing that is not the same on both clusters, where cluster names are translated.

    Attributes:
        path: what it is: `topic persistent://t/n/x: subscription s`.
        kind: how it differs.
        blue: what blue has, in short.
        green: what green has, in short; why green refused the change, where it was tried.
        creatable: whether provisioning can make it equal: what is missing always, what differs if it is asked to.
        harmless: whether traffic can move all the same.
    """

    path: str
    kind: DifferenceKind
    blue: str = ""
    green: str = ""
    creatable: bool = False
    harmless: bool = False

    @property
    def blocks(self) -> bool:
        """Whether traffic must not move before it is gone."""
        return not self.harmless and self.kind is not DifferenceKind.EXTRA

    def __str__(self) -> str:
        sides = ", ".join(f"{name} {text}" for name, text in (("blue:", self.blue), ("green:", self.green)) if text)
        return f"{self.path} {self.kind.value}" + (f" ({sides})" if sides else "")


class Provisioned(Result):
    """What became of one namespace on green.

    Attributes:
        created: how many things were created or changed, by kind: `topic`, `subscription`, `schema version`, …
        differences: what is left, after both sides were read again.
    """

    created: dict[str, int] = Field(default_factory=dict[str, int])
    differences: tuple[Difference, ...] = ()

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """Those because of which traffic must not move."""
        return tuple(difference for difference in self.differences if difference.blocks)


def short(text: str) -> str:
    """A text as differences show it."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
