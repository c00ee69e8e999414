"""What stands in the layout topic beside the layout, and when it is compacted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel

from models.topic_controller.sessions import AssignmentChanges, Coordinator

MOST = 1000
"""Messages to consumers after which the layout topic is compacted; with more consumers, as many as these."""


class News(BaseModel):
    """What was told in the layout topic since it was compacted: clients that come read all of it.

    Attributes:
        told: messages to consumers.
        ended: consumers whose sessions have ended since then, `subscription/consumer`.
        ended_before: in the time before that. Whoever was away has read by now that its session has ended.
    """

    told: int = 0
    ended: tuple[str, ...] = ()
    ended_before: tuple[str, ...] = ()

    def added(self, changes: AssignmentChanges) -> Self:
        """With what was told."""
        kept = type(self)(ended_before=self.ended) if changes.compact else self
        told = sum(len(one.assignments) + len(one.ended) for one in changes.subscriptions)
        ended = tuple(f"{one.subscription}/{name}" for one in changes.subscriptions for name in one.ended)
        return kept.model_copy(update={"told": kept.told + told, "ended": (*kept.ended, *ended)})

    def compacting(self, changes: AssignmentChanges, coordinators: Mapping[str, Coordinator]) -> AssignmentChanges:
        """Changes, with the compaction of the topic where that is due."""
        if self.told < MOST:
            return changes
        here = {f"{subscription}/{name}" for subscription, one in coordinators.items() for name in one.consumers}
        if self.told < len(here):
            return changes
        forgotten = tuple(sorted({*self.ended_before} - here))
        return changes.model_copy(update={"compact": True, "forgotten": forgotten})
