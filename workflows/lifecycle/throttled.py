"""Migrations with a bulk copy, which is held by a pause or by an automatic throttle."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError
from temporalio import workflow

from models.base import faults
from models.lifecycle.auto_throttle import AutoThrottle, CopyOrders
from models.lifecycle.input import ThrottledInput
from models.lifecycle.policy import ENDED
from models.lifecycle.state import StateT
from workflows.lifecycle.caller import by
from workflows.lifecycle.migration import Migration, refused

ThrottledInputT = TypeVar("ThrottledInputT", bound=ThrottledInput)


class ThrottledMigration(Migration[ThrottledInputT, StateT]):
    """Base of migrations whose copies ask, while they run, whether they may continue. Arguments as in `Migration`."""

    @workflow.query(description="What running copies ask for: whether they must stop, and what throttles them.")
    def copy_orders(self) -> CopyOrders:
        """Answer the query `copy_orders`."""
        return CopyOrders(pause=self.verbs.pause, throttle=self.state.auto_throttle or self.input.auto_throttle)

    @workflow.update(description="Replace the automatic throttle of copies; without a source there is none.")
    def set_auto_throttle(self, throttle: AutoThrottle) -> AutoThrottle:
        """Replace the automatic throttle of the copy that runs, and of those to come."""
        self.state.auto_throttle = throttle
        self.board.note(f"the automatic throttle is now {throttle}, set{by()}")
        return throttle

    @set_auto_throttle.validator
    def check_set_auto_throttle(self, throttle: AutoThrottle) -> None:
        """Refuse after the end, and where the input would be refused with it."""
        if self.verbs.ended:
            raise refused(ENDED)
        try:
            self.input.changed(auto_throttle=throttle)
        except ValidationError as error:
            raise refused(faults(error)) from None
