"""Input and result of the observers of a topic's consumers (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from models.base import Result
from models.topic_controller.record import ControlledLayout


class ObserverInput(Result):
    """Input of an observer.

    Attributes:
        subscriptions: subscriptions that have consumers.
        gone: for how many seconds consumers have been disconnected, by subscription and name.
        drained: ids of sealed segments that are known to be consumed, by subscription.
        grace_seconds: how long a session outlives its connection.
        epoch: epoch of the layout that the workflow has.
    """

    subscriptions: tuple[str, ...]
    gone: dict[str, dict[str, float]] = Field(default_factory=dict[str, dict[str, float]])
    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    grace_seconds: float
    epoch: int

    @property
    def with_fresh_grace(self) -> Self:
        """The input with a new grace for all consumers that are disconnected."""
        gone = {name: dict.fromkeys(consumers, 0.0) for name, consumers in self.gone.items()}
        return self.model_copy(update={"gone": gone})


class Observation(Result):
    """Changes that an observer has seen.

    Attributes:
        gone: disconnected consumers, by subscription.
        expired: those that have been disconnected for the whole grace.
        drained: ids of all sealed segments that are consumed completely, by subscription.
        unconsumed_again: segments that were consumed and have messages again: a broker lost acknowledgements, or a
            cursor was reset.
        unpublished: clients cannot see the layout, because its topic was deleted.
        layout: the current layout, if the workflow has another one; nothing else was checked then.
    """

    gone: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    expired: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    drained: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    unconsumed_again: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    unpublished: bool = False
    layout: ControlledLayout | None = None
