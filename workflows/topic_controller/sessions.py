"""Sessions of consumers as a workflow keeps them (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.topic_controller.activities import TopicControllerActivities as Activities
    from models.lifecycle.failures import FailureKind
    from models.topic_controller.input import ControllerInput
    from models.topic_controller.sessions import AssignmentChanges, Coordinator, Observation, Watching
    from models.topic_controller.state import ControllerState
    from workflows.lifecycle.failures import failure_of
    from workflows.lifecycle.fenced import Call, FencedCalls
    from workflows.lifecycle.migration import refused

_TELL = Call("Tell consumers what they read")
_OBSERVE = Call("Watch the connections of consumers, and what they have left")
# Consumers that come together are watched by one observer.
_SETTLE = timedelta(seconds=1)
_PATIENCE = timedelta(seconds=2)


class Sessions:
    """The sessions of all ordered subscriptions of one topic.

    Args:
        state: of the controller, of which this changes `coordinators`, `generation` and `grace`.
        calls: runs activities.
        on_change: called when something has changed that operators see.
    """

    def __init__(
        self, state: ControllerState, calls: FencedCalls[ControllerInput], on_change: Callable[[], None]
    ) -> None:
        self._state = state
        self._calls = calls
        self._on_change = on_change
        self._due = True
        self._anew = False
        #: Why nobody is told anything any more: another run does.
        self.lost: ActivityError | None = None

    async def run(self) -> None:
        """Tell consumers what they read, and watch them, until this is cancelled or another run does it."""
        tasks = [asyncio.create_task(self._coordinate()), asyncio.create_task(self._watch())]
        try:
            await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _end(tasks)
            raise
        await _end(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    # What is asked of it ----------------------------------------------------------------------------------------------

    async def join(self, subscription: str, consumers: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Register consumers, or take them back; returns what each reads, when that is noted and published.

        Raises:
            ApplicationError: the subscription, or one of them, went meanwhile.
        """
        names = [*consumers]
        self._state.coordinators.setdefault(subscription, Coordinator()).join(names)
        self._changed()

        def is_told(name: str) -> bool:
            session = self._coordinator(subscription).consumers.get(name)
            return session is None or session.segments is not None

        await workflow.wait_condition(lambda: self.lost is not None or all(map(is_told, names)))
        sessions = self._coordinator(subscription).consumers
        told = {name: sessions[name].segments for name in names if name in sessions}
        answer = {name: segments for name, segments in told.items() if segments is not None}
        if len(answer) < len({*names}):
            raise refused(f"consumers of {subscription} could not be registered: it was deleted, or another run leads")
        return answer

    def leave(self, subscription: str, consumers: Iterable[str]) -> None:
        """End sessions; harmless where there are none."""
        self._coordinator(subscription).leave(consumers)
        self._changed()

    def forget(self, *subscriptions: str) -> None:
        """Subscriptions are gone; so are their sessions."""
        for name in subscriptions:
            self._state.coordinators.pop(name, None)
        self._changed()

    def set_grace(self, grace: timedelta) -> None:
        """Change how long sessions outlive their connections, also of those that are missed now."""
        self._state.grace = grace
        self._changed()

    def layout_changed(self) -> None:
        """There are other segments to read, and to watch."""
        self._changed()

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _coordinate(self) -> None:
        """Tell what has changed, all of it at once, and never two things at the same time."""
        while self.lost is None:
            await workflow.wait_condition(lambda: self._due)
            self._due = False
            record = self._state.record
            if record is None or record.deleting:
                continue
            changes = AssignmentChanges.of(self._state.coordinators, record, self._state.generation + 1)
            if changes is None:
                continue
            try:
                await self._calls.ask(Activities.tell, _TELL, changes)
            except ActivityError as error:
                self._due = True
                await self._after(error)
            else:
                self._told(changes)

    def _told(self, changes: AssignmentChanges) -> None:
        self._state.generation = changes.generation
        for one in changes.subscriptions:
            self._coordinator(one.subscription).tell(one.assignments, one.ended)
        self._on_change()

    async def _watch(self) -> None:
        """Observe while there are sessions; anew when consumers have come, or other segments."""
        while self.lost is None:
            await workflow.wait_condition(lambda: bool(self._watched()))
            self._anew = False
            await self._observe(asyncio.create_task(self._calls.ask(Activities.observe, _OBSERVE, self._watching())))

    async def _observe(self, observing: asyncio.Task[Observation]) -> None:
        try:
            await workflow.wait_condition(lambda: self._anew or observing.done())
            if not observing.done():
                await workflow.sleep(_SETTLE)
        except asyncio.CancelledError:
            await _end([observing])
            raise
        # The next one, also that of the next run, begins when this one has ended.
        await _end([observing])
        if observing.cancelled():
            return
        error = observing.exception()
        if error is None:
            self._take(observing.result())
        elif not isinstance(error, ActivityError):
            raise error
        elif not is_cancelled_exception(error):
            await self._after(error)

    def _take(self, seen: Observation) -> None:
        now = workflow.now()
        for name, coordinator in self._state.coordinators.items():
            # Who has come back since the observer looked is not late.
            late = [one for one in seen.expired.get(name, ()) if coordinator.is_missed(one)]
            coordinator.observe(seen.gone.get(name, ()), now)
            coordinator.drained |= {*seen.drained.get(name, ())}
            coordinator.leave(late)
        self._due = True
        self._on_change()

    async def _after(self, error: ActivityError) -> None:
        if failure_of(error).type == FailureKind.NOT_LEADER:
            self.lost = error
            return
        await workflow.sleep(_PATIENCE)

    def _changed(self) -> None:
        self._due = self._anew = True
        self._on_change()

    def _coordinator(self, subscription: str) -> Coordinator:
        return self._state.coordinators.get(subscription, Coordinator())

    def _watched(self) -> Mapping[str, Coordinator]:
        return {name: one for name, one in self._state.coordinators.items() if one.consumers}

    def _watching(self) -> Watching:
        now, watched = workflow.now(), self._watched()
        return Watching(
            subscriptions=tuple(sorted(watched)),
            gone={name: one.missed(now) for name, one in watched.items()},
            drained={name: tuple(sorted(one.drained)) for name, one in watched.items()},
            grace_seconds=self._state.grace.total_seconds(),
        )


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await workflow.wait(tasks)
