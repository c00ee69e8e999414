"""The orders of activities that Temporal would give, for steps that run without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from models.lifecycle.execution import Execution
from models.lifecycle.input import MigrationInput

InputT = TypeVar("InputT", bound=MigrationInput)
Steps = Mapping[str, Callable[[], Mapping[str, float]]]

RUN = "bench"


class Scheduler:
    """Gives out activities as Temporal does: each is of the same run, and newer than the one before."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._epoch = 0

    def next(self, input: InputT) -> Execution[InputT]:
        """Return the next activity."""
        self._epoch += 1
        return Execution[InputT](input=input, run_id=RUN, started=self._started, epoch=self._epoch)
