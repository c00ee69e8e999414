"""Pruning: consumed sealed segments are removed from the layout, and their topics are deleted later."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from activities.topic_controller import prune
from models.topic_controller.pruning import PruneRequest, PruneResult, PruneTask, PruneWatch, Pruning
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.caller import by
from workflows.topic_controller.controller_session import ControllerSession
from workflows.topic_controller.poll import Poll

_AWAIT = Call("Wait until a sealed segment is consumed, and its retention is over")
_PRUNE = Call("Remove consumed sealed segments")


class Pruner:
    """Prunes one topic.

    Args:
        controller: controller of the topic.
    """

    def __init__(self, controller: ControllerSession) -> None:
        self._controller = controller
        self._poll = Poll(controller, self._start_poll, lambda _: self._prune_due())
        controller.on_layout_change.append(self._poll.restart)

    async def run(self) -> None:
        """Prune until this is cancelled."""
        await self._poll.run()

    def set(self, pruning: Pruning | None) -> None:
        """Change the settings; None turns pruning off."""
        self._controller.state.pruning = pruning
        self._poll.restart()
        self._controller.show_status()

    async def prune(self, request: PruneRequest) -> PruneResult:
        """Prune now, even segments that were sealed a short time ago.

        Raises:
            ApplicationError: it failed, or another run is in control.
        """
        settings = self._controller.state.pruning or Pruning()
        return await self._prune(request, settings.model_copy(update={"after": timedelta()}))

    def _start_poll(self) -> Coroutine[Any, Any, bool] | None:
        record, pruning = self._controller.state.record, self._controller.state.pruning
        if record is None or record.deleting or pruning is None:
            return None
        watch = PruneWatch.of(record, pruning)
        return self._controller.calls.ask(prune.await_prune, _AWAIT, watch) if watch else None

    async def _prune_due(self) -> None:
        if self._controller.state.pruning is not None:
            await self._prune(PruneRequest(), self._controller.state.pruning)

    async def _prune(self, request: PruneRequest, pruning: Pruning) -> PruneResult:
        controller = self._controller
        async with controller.exclusive("prune sealed segments"):
            task = PruneTask(request=request, pruning=pruning, epoch=controller.record.epoch)
            pruned = await controller.run_step(controller.calls.ask(prune.prune, _PRUNE, task))
            record = pruned.record or controller.record.without_segments(pruned.removed, pruned.at_ms).without_retired(
                pruned.deleted
            )
            for coordinator in controller.state.coordinators.values():
                # Segments that left the layout count as consumed.
                coordinator.drained &= {*record.segments}
            controller.set_layout(record)
            if pruned.removed or pruned.deleted:
                controller.note(
                    f"pruned {_named(pruned.removed)} from the layout, and deleted topics of {_named(pruned.deleted)}"
                    f"{by()}"
                )
            return pruned.model_copy(update={"record": None})


def _named(ids: tuple[int, ...]) -> str:
    return f"{'segment' if len(ids) == 1 else 'segments'} {', '.join(map(str, ids))}" if ids else "none"
