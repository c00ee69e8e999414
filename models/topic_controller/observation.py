"""What observers of a topic's consumers begin with, and what they find (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from models.base import Result
from models.topic_controller.record import ControlledLayout


class ObserverInput(Result):
    """What an observer begins with.

    Attributes:
        subscriptions: that have consumers.
        gone: for how many seconds consumers are missed already, by subscription and name.
        drained: sealed segments that are known to be consumed, by subscription.
        grace_seconds: after which a session ends.
        epoch: of the layout as the workflow has it.
    """

    subscriptions: tuple[str, ...]
    gone: dict[str, dict[str, float]] = Field(default_factory=dict[str, dict[str, float]])
    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    grace_seconds: float
    epoch: int

    @property
    def with_fresh_grace(self) -> Self:
        """The same for who begins again: those who are missed have a fresh grace, and who is back is told."""
        gone = {name: dict.fromkeys(consumers, 0.0) for name, consumers in self.gone.items()}
        return self.model_copy(update={"gone": gone})


class Observation(Result):
    """What has changed.

    Attributes:
        gone: consumers that are not connected now, by subscription.
        expired: those of them that were missed for the whole grace.
        drained: sealed segments of which a subscription has consumed all, by subscription; those that were known too.
        unconsumed_again: segments that were consumed and have messages again: a broker lost acknowledgements, or a
            cursor was reset.


        unpublished: nobody can see the layout, since somebody has deleted its topic.
        layout: the one that counts, where the workflow has another; nothing else was looked at then.
    """

    gone: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    expired: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    unconsumed_again: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    unpublished: bool = False
    layout: ControlledLayout | None = None
