"""Sessions of consumers as a workflow keeps them (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.topic_controller import observers, sessions
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import observers_queue
from models.topic_controller.observation import Observation, ObserverInput
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import AssignmentChanges, Coordinator, DrainedSegments
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import failure_of
from workflows.lifecycle.migration import refused
from workflows.topic_controller.asyncio_tasks import is_cancelled, wait_for_end
from workflows.topic_controller.controller_session import ControllerSession

_TELL = Call("Tell consumers what they read")
_RECALL = Call("Ask brokers what is consumed already")
_OBSERVE = "Watch the connections of consumers, and what they have left"
# Consumers that come together are watched by one observer; each new one costs events of the history.
_SETTLE = timedelta(seconds=1)
_PATIENCE = timedelta(seconds=2)
_FAREWELL = timedelta(seconds=10)


class Sessions:
    """The sessions of all ordered subscriptions of one topic.

    Args:
        controller: of the topic, of whose state this changes `coordinators`, `generation` and `grace`.
    """

    def __init__(self, controller: ControllerSession) -> None:
        self._controller = controller
        self._state = controller.state
        self._calls = controller.calls
        self._on_change = controller.show_status
        self._due = True
        self._restarting = False
        self._restart_now = False
        self._observing: list[asyncio.Task[Observation]] = []
        self._unpublished = False
        #: Why nobody is told anything any more: another run does.
        self.lost: ActivityError | None = None

    async def coordinate(self) -> None:
        """Tell what has changed, all of it at once, and never two things at the same time, until another run does.

        A run that was reset tells nothing: others may have what it gave to somebody.
        """
        # What was cancelled before it was told is due again.
        self._due = True
        while self._is_leading and not is_cancelled():
            await workflow.wait_condition(lambda: self._due or not self._is_leading)
            self._due = False
            record = self._state.record
            if record is None or record.deleting or not self._is_leading:
                continue
            try:
                await self._recall(record)
                await self._tell()
            except ActivityError as error:
                self._due = True
                await self._after(error)

    async def watch(self) -> None:
        """Observe while there are sessions; again when consumers have come, or other segments."""
        try:
            while self._is_leading and not is_cancelled():
                # Whoever looks before the layout is told again sees the same again.
                await workflow.wait_condition(lambda: bool(self._watched()) and not self._unpublished)
                # Who is not noted yet is not observed yet, though the observers of others continue.
                self._restarting, self._restart_now = self._is_telling, False
                await self._observe(self._begin_to_observe())
        except asyncio.CancelledError:
            await wait_for_end(*self._observing)
            raise
        # The next run begins when the steps of this one have ended.
        await wait_for_end(*self._observing)

    # What is asked of it ----------------------------------------------------------------------------------------------

    async def join(
        self, subscription: str, consumers: Iterable[str], instances: Mapping[str, str]
    ) -> dict[str, tuple[int, ...]]:
        """Register consumers, or take them back; returns what each reads, when that is noted and published.

        Who left meanwhile is left out: others came with it, and stay.

        Raises:
            ApplicationError: all of them, or the subscription, went meanwhile, or the next run must be asked.
        """
        names = [*consumers]
        self._state.coordinators.setdefault(subscription, Coordinator()).join(names, instances)
        self._changed()

        def is_told(name: str) -> bool:
            session = self._coordinator(subscription).consumers.get(name)
            return session is None or session.segments is not None

        await workflow.wait_condition(lambda: not self._is_leading or all(map(is_told, names)))
        self._controller.require_current()
        sessions = self._coordinator(subscription).consumers
        told = {name: sessions[name].segments for name in names if name in sessions}
        answer = {name: segments for name, segments in told.items() if segments is not None}
        if not answer:
            raise refused(f"consumers of {subscription} could not be registered: it was deleted, or another run leads")
        return answer

    def leave(self, subscription: str, consumers: Iterable[str], instances: Mapping[str, str] | None = None) -> None:
        """End sessions; harmless where there are none, or where others have them by now."""
        self._coordinator(subscription).leave(consumers, instances)
        self._changed()

    async def end_all(self, subscription: str) -> None:
        """End all sessions of a subscription, and see that its consumers know: they would make its places again."""
        self.leave(subscription, [*self._coordinator(subscription).consumers])
        with suppress(TimeoutError):
            # Who cannot be told does not keep it from going.
            await workflow.wait_condition(
                lambda: not (self._is_leading and self._coordinator(subscription).evicted), timeout=_FAREWELL
            )

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
        """There are other segments to read, and to watch: an observer that does not know them is no use."""
        self._restart_now = True
        self._changed()

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _is_leading(self) -> bool:
        """Whether this run tells consumers what they read."""
        return self.lost is None and not self._controller.is_reset

    @property
    def _next_generation(self) -> int:
        """By the clock: what a run told that was terminated, or reset, nobody knows, and clients never go back."""
        return max(self._state.generation + 1, round(workflow.now().timestamp() * 1000))

    async def _take_layout(self, found: ControlledLayout) -> None:
        """There is a newer layout: that of a change under way, which takes it itself, or one that a reset forgot."""
        self._due = True
        await workflow.wait_condition(lambda: not self._controller.is_changing)
        if self._controller.record.epoch < found.epoch:
            self._controller.note(
                f"the layout is at epoch {found.epoch}, and was taken to be at {self._controller.record.epoch}"
            )
            self._controller.set_layout(found)

    async def _recall(self, record: ControlledLayout) -> None:
        """Ask what subscriptions have consumed whose first consumer came: nobody has looked before."""
        # Others come while brokers are asked, and all that have come are told right behind this.
        while forgetful := {name: one for name, one in self._state.coordinators.items() if one.needs_recovery}:
            found = DrainedSegments()
            if any(segment.sealed for segment in record.segments.values()):
                found = await self._calls.ask(sessions.find_drained, _RECALL, tuple(sorted(forgetful)))
            for name, coordinator in forgetful.items():
                # Where all have left meanwhile, the next one asks.
                if coordinator.needs_recovery:
                    coordinator.restore_drained(found.drained.get(name, ()))

    async def _tell(self) -> None:
        coordinators = self._state.coordinators
        changes = AssignmentChanges.of(
            coordinators, self._controller.record, self._next_generation, layout=self._unpublished
        )
        if changes is None:
            return
        changes = self._state.compaction.with_compaction(changes, coordinators)
        answer = await self._calls.ask(sessions.publish_assignments, _TELL, changes)
        if answer.record is None:
            self._told(changes)
        else:
            await self._take_layout(answer.record)

    def _told(self, changes: AssignmentChanges) -> None:
        self._state.generation = changes.generation
        self._state.compaction = self._state.compaction.with_published(changes)
        self._unpublished = self._unpublished and not changes.layout
        for subscription in changes.subscriptions:
            self._coordinator(subscription.subscription).note_published(subscription.assignments, subscription.ended)
        self._on_change()

    def _begin_to_observe(self) -> asyncio.Task[Observation]:
        # On a queue of its own: it lasts indefinitely, and there are as many as there are topics with consumers.
        call = Call(_OBSERVE, queue=observers_queue(workflow.info().task_queue))
        observing = asyncio.create_task(self._calls.ask(observers.observe, call, self._watching()))
        self._observing.append(observing)
        observing.add_done_callback(self._forget)
        return observing

    def _forget(self, observing: asyncio.Task[Observation]) -> None:
        self._observing.remove(observing)
        if not observing.cancelled():
            # Looked at, or asyncio would report it as never retrieved where nobody waits for it any more.
            observing.exception()

    async def _observe(self, observing: asyncio.Task[Observation]) -> None:
        try:
            await workflow.wait_condition(
                lambda: observing.done() or self._restart_now or (self._restarting and not self._is_telling)
            )
            if not (self._restart_now or observing.done()):
                with suppress(TimeoutError):
                    # What the observer sees meanwhile does not wait.
                    await workflow.wait_condition(lambda: self._restart_now or observing.done(), timeout=_SETTLE)
        finally:
            observing.cancel()
        # It only reads, and the next one sees what it saw: that one does not wait until this one has heard of its end.
        if not observing.done() or observing.cancelled():
            return
        error = observing.exception()
        if error is None:
            seen = observing.result()
            if seen.layout is None:
                self._take(seen)
            else:
                await self._take_layout(seen.layout)
        elif not isinstance(error, ActivityError):
            raise error
        elif not is_cancelled_exception(error):
            await self._after(error)

    def _take(self, seen: Observation) -> None:
        now = workflow.now()
        for name, coordinator in self._state.coordinators.items():
            # Who has come back since the observer looked is not late.
            late = [one for one in seen.expired.get(name, ()) if coordinator.is_disconnected(one)]
            coordinator.note_disconnected(seen.gone.get(name, ()), now)
            unconsumed_again = seen.unconsumed_again.get(name, ())
            coordinator.note_drained(seen.drained.get(name, ()), unconsumed_again)
            if unconsumed_again:
                which = ", ".join(map(str, unconsumed_again))
                self._controller.note(f"{name}: something is left again of segment {which}; its consumers get it back")
            coordinator.leave(late)
        self._unpublished = self._unpublished or seen.unpublished
        self._due = True
        self._on_change()

    async def _after(self, error: ActivityError) -> None:
        if failure_of(error).type == FailureKind.NOT_LEADER:
            self.lost = error
        elif not is_cancelled():
            await workflow.sleep(_PATIENCE)

    def _changed(self) -> None:
        self._due = self._restarting = True
        self._on_change()

    def _coordinator(self, subscription: str) -> Coordinator:
        return self._state.coordinators.get(subscription, Coordinator())

    def _watched(self) -> Mapping[str, Coordinator]:
        return {name: one for name, one in self._state.coordinators.items() if _noted(one)}

    @property
    def _is_telling(self) -> bool:
        """Whether there are sessions that are not noted in the metadata store yet, where observers find them."""
        return any(
            _noted(coordinator) < len(coordinator.consumers) for coordinator in self._state.coordinators.values()
        )

    def _watching(self) -> ObserverInput:
        now, watched = workflow.now(), self._watched()
        return ObserverInput(
            subscriptions=tuple(sorted(watched)),
            gone={name: one.disconnected_seconds(now) for name, one in watched.items()},
            drained={name: tuple(sorted(one.drained)) for name, one in watched.items()},
            grace_seconds=self._state.grace.total_seconds(),
            epoch=self._controller.record.epoch,
        )


def _noted(coordinator: Coordinator) -> int:
    """How many consumers were told what they read, which notes their sessions."""
    return sum(1 for consumer in coordinator.consumers.values() if consumer.segments is not None)
