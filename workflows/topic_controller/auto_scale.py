"""Automatic splits and merges: by load, by number of consumers and by time."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from temporalio import workflow

from activities.topic_controller import scale
from models.topic_controller.auto_scale import AutoScale
from models.topic_controller.scale_decision import Decision, ScaledSegment, ScaleWatch
from workflows.lifecycle.activity_calls import Call
from workflows.topic_controller.changes import Changes
from workflows.topic_controller.controller_session import ControllerSession
from workflows.topic_controller.poll import Poll

_AWAIT = Call("Wait until a split or a merge is due")


class Scaler:
    """Scales one topic by its policy.

    Args:
        controller: controller of the topic.
        changes: splits and merges segments.
    """

    def __init__(self, controller: ControllerSession, changes: Changes) -> None:
        self._controller = controller
        self._changes = changes
        self._epoch = 0
        self._poll = Poll(controller, self._start_poll, self._do)
        controller.on_layout_change.append(self._poll.restart)

    async def run(self) -> None:
        """Scale until this is cancelled."""
        await self._poll.run()

    def set(self, policy: AutoScale | None) -> None:
        """Change the policy; None turns auto-scale off."""
        self._controller.state.scaling.policy = policy
        self._poll.restart()
        self._controller.show_status()

    def _start_poll(self) -> Coroutine[Any, Any, Decision] | None:
        record, scaling = self._controller.state.record, self._controller.state.scaling
        policy = scaling.policy
        if record is None or record.deleting or policy is None or not policy.enabled:
            return None
        self._epoch = record.epoch
        changed_at_ms = record.changed_at_ms
        if policy.dry_run and scaling.decided_at is not None:
            # A decision in a dry run starts the cooldown too, or every check would report it again.
            changed_at_ms = max(changed_at_ms, round(scaling.decided_at.timestamp() * 1000))
        watch = ScaleWatch(policy=policy, segments=ScaledSegment.all_of(record), changed_at_ms=changed_at_ms)
        return self._controller.calls.ask(scale.await_scale, _AWAIT, watch)

    async def _do(self, due: Decision) -> None:
        scaling = self._controller.state.scaling
        if scaling.policy is None or not scaling.policy.enabled:
            return
        what = f"{due.change} of {' and '.join(map(str, due.segments))}"
        scaling.decision, scaling.decided_at = f"{what}: {due.why}", workflow.now()
        if scaling.policy.dry_run:
            self._controller.note(f"dry run: would do the {what}, since {due.why}")
            return
        self._controller.note(f"auto scale: {what}, since {due.why}")
        # Another change may come first; with both there could be more segments than the policy allows, hence the epoch.
        # A change that fails starts no cooldown, as the layout is unchanged; `Poll` decides again after a backoff.
        await self._changes.make(due.change, due.segments, epoch=self._epoch)
