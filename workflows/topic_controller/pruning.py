"""Sealed segments that nobody needs any more leave the layout, and their topics go later."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from activities.topic_controller import prune
from models.topic_controller.pruning import Pruned, PruneRequest, PruneTask, PruneWatch, Pruning
from workflows.lifecycle.activity_calls import Call
from workflows.topic_controller.lead import Lead
from workflows.topic_controller.poll import Poll

_AWAIT = Call("Wait until a sealed segment is consumed, and its retention is over")
_PRUNE = Call("Remove sealed segments of which nothing is left")


class Pruner:
    """Prunes one topic.

    Args:
        lead: of the topic.
    """

    def __init__(self, lead: Lead) -> None:
        self._lead = lead
        self._poll = Poll(lead, self._look, lambda _: self._when_due())
        lead.on_layout.append(self._poll.anew)

    async def run(self) -> None:
        """Prune what may go, until this is cancelled."""
        await self._poll.run()

    def set(self, pruning: Pruning | None) -> None:
        """Prune by other settings, or not at all."""
        self._lead.state.pruning = pruning
        self._poll.anew()
        self._lead.tell()

    async def prune(self, request: PruneRequest) -> Pruned:
        """Prune at once what may go, however short it is sealed.

        Raises:
            ApplicationError: it failed, or another run leads.
        """
        settings = self._lead.state.pruning or Pruning()
        return await self._prune(request, settings.model_copy(update={"after": timedelta()}))

    def _look(self) -> Coroutine[Any, Any, bool] | None:
        record, pruning = self._lead.state.record, self._lead.state.pruning
        if record is None or record.deleting or pruning is None:
            return None
        watch = PruneWatch.of(record, pruning)
        return self._lead.calls.ask(prune.await_prune, _AWAIT, watch) if watch else None

    async def _when_due(self) -> None:
        if self._lead.state.pruning is not None:
            await self._prune(PruneRequest(), self._lead.state.pruning)

    async def _prune(self, request: PruneRequest, pruning: Pruning) -> Pruned:
        lead = self._lead
        async with lead.alone("prune sealed segments"):
            task = PruneTask(request=request, pruning=pruning, epoch=lead.record.epoch)
            pruned = await lead.ask(lead.calls.ask(prune.prune, _PRUNE, task))
            record = pruned.found or lead.record.pruned(pruned.removed, pruned.at_ms).forgotten(pruned.deleted)
            for coordinator in lead.state.coordinators.values():
                # What the layout does not name any more is consumed.
                coordinator.drained &= {*record.segments}
            lead.take(record)
            if pruned.removed or pruned.deleted:
                lead.note(
                    f"pruned {_named(pruned.removed)} from the layout, and deleted topics of {_named(pruned.deleted)}"
                )
            return pruned.model_copy(update={"found": None})


def _named(ids: tuple[int, ...]) -> str:
    return f"{'segment' if len(ids) == 1 else 'segments'} {', '.join(map(str, ids))}" if ids else "none"
