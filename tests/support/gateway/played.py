"""Controllers that answer what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.controllers import Controllers
from models.segments.layout import SegmentLayout
from temporal.caller import acting_for


class Played(Controllers):
    """Answers what a test says.

    Attributes:
        answer: of each update; raises what it fails with.
        layout: of each topic.
        completes: whether a controller that ends has deleted its topic.
        asked: names of updates.
        sent: their arguments.
        senders: for whom they were sent.
    """

    def __init__(self) -> None:
        self.answer: Callable[[], Any] = lambda: None
        self.layout = SegmentLayout.initial(3, 0)
        self.completes = True
        self.asked: list[str] = []
        self.sent: list[Any] = []
        self.senders: list[str] = []

    async def update(self, topic: str, name: str, argument: Any, answer: Any, deadline: float) -> Any:
        """Answer an update."""
        self.asked.append(name)
        self.sent.append(argument)
        self.senders.append(acting_for())
        return self.answer()

    async def query(self, topic: str, name: str, answer: Any, deadline: float) -> Any:
        """Answer the query for the layout."""
        assert name == "layout"
        return answer.model_validate(self.layout.model_dump())

    async def run_of(self, topic: str, deadline: float) -> Any:
        """Answer with a run."""

    async def await_end(self, handle: Any, deadline: float) -> bool:
        """Return at once: the workflow has ended."""
        return self.completes

    async def names(self, tenant: str, namespace: str, deadline: float) -> list[str]:
        """Answer the list."""
        return [f"{tenant}/{namespace}/orders"]

    async def require_temporal(self) -> None:
        """Answer whether Temporal is there."""
        self.answer()
