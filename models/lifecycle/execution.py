"""What every activity gets first: the input, and which attempt of which run this is."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import SerializeAsAny

from models.base import Frozen
from models.lifecycle.input import WorkflowInput

InputT = TypeVar("InputT", bound=WorkflowInput)


class Execution(Frozen, Generic[InputT]):
    """A migration's input, and the place of one activity among all that the migration schedules.

    Claims and fences order attempts by it: of two runs of one workflow id the one that `started` later is newer, and
    inside a run the larger (`epoch`, attempt of the activity).

    Attributes:
        input: of the migration.
        run_id: id of the migration's first run; neither continuing as new nor a reset changes it.
        started: when that run began, by Temporal's clock; continuing as new does not change it.
        epoch: grows with every activity that the workflow schedules, over all of its runs, also where Temporal resets
            one: milliseconds since 1970, or one more than the last.
    """

    # A declared bound would cut the input down to the fields that all migrations share.
    input: SerializeAsAny[InputT]
    run_id: str
    started: datetime
    epoch: int
