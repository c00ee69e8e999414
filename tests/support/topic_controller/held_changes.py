"""Holds the real controller between any two of its changes, and after its check of the fence.

Each change that a step makes directly follows a check of the fence: the checks of a step, in their order, are all
places at which it can die or freeze between two changes. The gate of the third change of `prepare` is `prepare-3`.
With `before` it is held before the check, and with `after` between the check and the change, which is then late.
"""

from __future__ import annotations

import itertools
import time
from contextvars import ContextVar
from typing import Any, NamedTuple

from activities.topic_controller import context
from activities.topic_controller.lease import LeaderClaim, LeaderLease
from clients.cas.store import Check
from tests.support.lifecycle.gates import Edge, Gate, Gates


class Step(NamedTuple):
    """A step that runs.

    Attributes:
        name: its own.
        held: gates at which it was held, to be ended with it.
    """

    name: str
    held: list[Gate]


STEP: ContextVar[Step] = ContextVar("step")
"""The step that runs in this context."""

_POLL = 0.02


def hold_changes(gates: Gates) -> None:
    """Hold all steps of controllers in this process at gates."""

    class HeldLease(LeaderLease):
        """Counts checks of the fence by one attempt."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._step = STEP.get()
            self._looks = itertools.count(1)

        def require(self) -> LeaderClaim:
            number = next(self._looks)
            self._hold(number, Edge.BEFORE)
            claim = super().require()
            self._hold(number, Edge.AFTER)
            return claim

        def guard(self) -> Check:
            number = next(self._looks)
            self._hold(number, Edge.BEFORE)
            check = super().guard()
            self._hold(number, Edge.AFTER)
            return check

        def _hold(self, number: int, edge: Edge) -> None:
            gate = Gate(f"{self._step.name}-{number}", edge)
            # The activity continues with its heartbeats, as it does while it waits for a server.
            if gates.take(gate) is None:
                return
            self._step.held.append(gate)
            while not gates.released(gate):
                time.sleep(_POLL)

    context.LeaderLease = HeldLease
