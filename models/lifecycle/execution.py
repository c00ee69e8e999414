"""The first argument of every activity: the input, and the numbers that order attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import SerializeAsAny

from models.base import Frozen
from models.lifecycle.input import WorkflowInput

InputT = TypeVar("InputT", bound=WorkflowInput)


class Execution(Frozen, Generic[InputT]):
    """A migration's input, and the position of one activity among all that the migration schedules.

    Claims and fences order attempts by it. Of two runs of one workflow id the one that `started` later is newer; in one
    run the larger pair of `epoch` and attempt is newer.

    Attributes:
        input: of the migration.
        run_id: id of the migration's first run; neither continue-as-new nor a reset changes it.
        started: when that run started, by Temporal's clock; continue-as-new does not change it.
        epoch: grows with every activity that the workflow schedules, over all its runs and resets: milliseconds since
            1970, or the last epoch plus one.
        phase: the phase that scheduled it, for the log; empty between phases, and for controllers.
    """

    # Serialized as the bound of `InputT`, it would lose the fields of the migration.
    input: SerializeAsAny[InputT]
    run_id: str
    started: datetime
    epoch: int
    phase: str = ""
