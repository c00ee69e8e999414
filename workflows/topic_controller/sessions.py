"""Sessions of consumers in the workflow (PIP-468, "Consumer Session Lifecycle")."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from activities.topic_controller import observers, sessions
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import observers_queue
from models.lifecycle.state import Failure
from models.topic_controller.observation import Observation, ObserverInput
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import AssignmentChanges, Coordinator, DrainedSegments, Registrations
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.failures import failure_of, to_exception
from workflows.lifecycle.migration import refused
from workflows.lifecycle.tasks import is_cancelled, wait_for_end
from workflows.topic_controller.controller_session import STEP_FAILURES, ControllerSession

_PUBLISH = Call("Publish what consumers read")
_FIND_DRAINED = Call("Ask brokers which segments are consumed")
_OBSERVE = "Watch the connections and backlogs of consumers"
# Consumers that come together are watched by one observer; each new observer adds events to the history.
_BATCH_WINDOW = timedelta(seconds=1)
# The longest pause is shorter than a gateway waits for a registration, so that its client gets the reason.
_FIRST_BACKOFF, _MAX_BACKOFF = timedelta(seconds=2), timedelta(seconds=20)
_EVICTION_TIMEOUT = timedelta(seconds=10)


class Sessions:
    """The sessions of all ordered subscriptions of one topic.

    Args:
        controller: controller of the topic; of its state this changes `coordinators`, `generation` and `grace`.
    """

    def __init__(self, controller: ControllerSession) -> None:
        self._controller = controller
        self._state = controller.state
        self._calls = controller.calls
        self._on_change = controller.show_status
        self._publication_due = True
        #: Publications wait until the topic is open, and later for a change whose layout is stored already.
        self._awaits_change = True
        self._restarting = False
        self._restart_now = False
        self._observing: list[asyncio.Task[Observation]] = []
        self._unpublished = False
        self._failed_publications = _FailedAttempts(controller, "publish what consumers read", waits=True)
        # An observer that starts again has no answer until something changes, so nothing waits for one.
        self._failed_observations = _FailedAttempts(controller, "watch consumers")
        #: Why this run publishes nothing any more: another run is in control.
        self.lost: Exception | None = None

    async def coordinate(self) -> None:
        """Publish changes of assignments, together and one publication at a time, until another run is in control.

        A run that was reset publishes nothing: its segments may belong to other consumers by now.
        """
        # A publication that was cancelled is due again.
        self._publication_due, self._awaits_change = True, False
        while self._is_leading and not is_cancelled():
            await workflow.wait_condition(lambda: self._publication_due or not self._is_leading)
            self._publication_due = False
            record = self._state.record
            if record is None or record.deleting or not self._is_leading:
                continue
            try:
                await self._find_drained(record)
                await self._publish()
            except STEP_FAILURES as error:
                self._publication_due = True
                await self._back_off(self._failed_publications, error)
            else:
                self._failed_publications.clear()

    async def watch(self) -> None:
        """Observe consumers while there are sessions; start again for new consumers and new segments."""
        try:
            while self._is_leading and not is_cancelled():
                # An observer that starts before a deleted layout is published again would report it again.
                await workflow.wait_condition(lambda: bool(self._watched()) and not self._unpublished)
                # New consumers are observed once their session is stored; observers of others continue until then.
                self._restarting, self._restart_now = self._is_publishing, False
                await self._observe(self._start_observer())
        except asyncio.CancelledError:
            await wait_for_end(*self._observing)
            raise
        # The next run must start after the steps of this one have ended.
        await wait_for_end(*self._observing)

    # Operations -------------------------------------------------------------------------------------------------------

    async def join(self, request: Registrations) -> dict[str, tuple[int, ...]]:
        """Register consumers; return what each reads, once that is stored and published.

        Consumers that have left since then are left out of the result.

        Raises:
            ApplicationError: no consumer is left, the subscription was deleted, another run is in control, or two
                attempts to publish, or to make a change for which that waits, have failed in succession. The sessions
                stay, and are published when that succeeds.
        """
        subscription, names = request.subscription, request.consumers
        coordinator = self._state.coordinators.setdefault(subscription, Coordinator())
        coordinator.join(names, request.instances, request.owners)
        self._changed()

        def is_published(name: str) -> bool:
            session = self._coordinator(subscription).consumers.get(name)
            return session is None or session.segments is not None

        earlier = self._failed_publications.repeated

        def failure() -> Failure | None:
            if all(map(is_published, names)):
                return None
            if self._awaits_change and self._controller.repeated_failure:
                # Its next attempt may come after an hour.
                return self._controller.repeated_failure
            repeated = self._failed_publications.repeated
            return None if repeated is earlier else repeated

        await workflow.wait_condition(
            lambda: not self._is_leading or all(map(is_published, names)) or failure() is not None
        )
        self._controller.require_current()
        if failed := failure():
            raise to_exception(failed)
        sessions = self._coordinator(subscription).consumers
        assigned = {name: sessions[name].segments for name in names if name in sessions}
        answer = {name: segments for name, segments in assigned.items() if segments is not None}
        if not answer:
            raise refused(
                f"consumers of {subscription} could not be registered: they left, it was deleted, or another run is in "
                "control"
            )
        return answer

    def leave(self, subscription: str, consumers: Iterable[str], instances: Mapping[str, str] | None = None) -> None:
        """End sessions; does nothing for consumers without a session, and for sessions of other instances."""
        self._coordinator(subscription).leave(consumers, instances)
        self._changed()

    async def end_all(self, subscription: str) -> None:
        """End all sessions of a subscription, and publish that: else consumers would create its cursors again."""
        self.leave(subscription, [*self._coordinator(subscription).consumers])
        with suppress(TimeoutError):
            # The deletion continues even if it cannot be published.
            await workflow.wait_condition(
                lambda: not (self._is_leading and self._coordinator(subscription).evicted), timeout=_EVICTION_TIMEOUT
            )

    def forget(self, *subscriptions: str) -> None:
        """Remove the sessions of deleted subscriptions."""
        for name in subscriptions:
            self._state.coordinators.pop(name, None)
        self._changed()

    def set_grace(self, grace: timedelta) -> None:
        """Change how long sessions outlive their connections, also for consumers that are disconnected now."""
        self._state.grace = grace
        self._changed()

    def layout_changed(self) -> None:
        """Publish assignments for a new layout, and replace the observer, which does not know its segments."""
        self._restart_now = True
        self._changed()

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _is_leading(self) -> bool:
        """This run publishes assignments, as no other run is known to be in control."""
        return self.lost is None and not self._controller.is_reset

    @property
    def _next_generation(self) -> int:
        """A generation from the clock, above all earlier ones: those of a terminated or reset run are unknown."""
        return max(self._state.generation + 1, round(workflow.now().timestamp() * 1000))

    async def _use_layout(self, layout: ControlledLayout) -> None:
        """Use a newer layout, unless the change in progress does: it is from that, or from before a reset."""
        self._publication_due = self._awaits_change = True
        try:
            await workflow.wait_condition(lambda: not self._controller.is_changing)
        finally:
            # A run that ends its observer still publishes.
            self._awaits_change = False
        if self._controller.record.epoch < layout.epoch:
            self._controller.note(
                f"the layout is at epoch {layout.epoch}; this run expected {self._controller.record.epoch}"
            )
            self._controller.set_layout(layout)

    async def _find_drained(self, record: ControlledLayout) -> None:
        """Ask brokers what subscriptions with a first consumer have consumed; that was not watched before."""
        # More subscriptions may come while brokers are asked; all of them are published next.
        while unknown := {
            name: coordinator for name, coordinator in self._state.coordinators.items() if coordinator.needs_recovery
        }:
            segments = DrainedSegments()
            if any(segment.sealed for segment in record.segments.values()):
                segments = await self._calls.ask(sessions.find_drained, _FIND_DRAINED, tuple(sorted(unknown)))
            for name, coordinator in unknown.items():
                # If all consumers have left since then, ask again for the next one.
                if coordinator.needs_recovery:
                    coordinator.restore_drained(segments.drained.get(name, ()))

    async def _publish(self) -> None:
        coordinators = self._state.coordinators
        changes = AssignmentChanges.of(
            coordinators, self._controller.record, self._next_generation, layout=self._unpublished
        )
        if changes is None:
            return
        changes = self._state.compaction.with_compaction(changes, coordinators)
        answer = await self._calls.ask(sessions.publish_assignments, _PUBLISH, changes)
        if answer.record is None:
            self._note_published(changes)
        else:
            await self._use_layout(answer.record)

    def _note_published(self, changes: AssignmentChanges) -> None:
        self._state.generation = changes.generation
        self._state.compaction = self._state.compaction.with_published(changes)
        self._unpublished = self._unpublished and not changes.layout
        for subscription in changes.subscriptions:
            self._coordinator(subscription.subscription).note_published(subscription.assignments, subscription.ended)
        self._on_change()

    def _start_observer(self) -> asyncio.Task[Observation]:
        # On its own task queue: it runs indefinitely, and every topic with consumers has one.
        call = Call(_OBSERVE, queue=observers_queue(workflow.info().task_queue))
        observing = asyncio.create_task(self._calls.ask(observers.observe, call, self._observer_input()))
        self._observing.append(observing)
        observing.add_done_callback(self._forget)
        return observing

    def _forget(self, observing: asyncio.Task[Observation]) -> None:
        self._observing.remove(observing)
        if not observing.cancelled():
            # Retrieve the exception, or asyncio reports it as never retrieved.
            observing.exception()

    async def _observe(self, observing: asyncio.Task[Observation]) -> None:
        try:
            await workflow.wait_condition(
                lambda: observing.done() or self._restart_now or (self._restarting and not self._is_publishing)
            )
            if not (self._restart_now or observing.done()):
                with suppress(TimeoutError):
                    # Until then, changes that the observer sees are processed.
                    await workflow.wait_condition(lambda: self._restart_now or observing.done(), timeout=_BATCH_WINDOW)
        finally:
            observing.cancel()
        # It only reads, and the next one sees the same, so do not wait for its cancellation.
        if not observing.done() or observing.cancelled():
            return
        error = observing.exception()
        if error is None:
            self._failed_observations.clear()
            observation = observing.result()
            if observation.layout is None:
                self._apply(observation)
            else:
                await self._use_layout(observation.layout)
        elif not isinstance(error, STEP_FAILURES):
            raise error
        elif not is_cancelled_exception(error):
            await self._back_off(self._failed_observations, error)

    def _apply(self, observation: Observation) -> None:
        now = workflow.now()
        for name, coordinator in self._state.coordinators.items():
            # A consumer that has returned since the observation keeps its session.
            expired = [
                consumer for consumer in observation.expired.get(name, ()) if coordinator.is_disconnected(consumer)
            ]
            coordinator.note_disconnected(observation.gone.get(name, ()), now)
            unconsumed = observation.unconsumed_again.get(name, ())
            coordinator.note_drained(observation.drained.get(name, ()), unconsumed)
            if unconsumed:
                ids = ", ".join(map(str, unconsumed))
                self._controller.note(f"{name}: segment {ids} has unacknowledged messages again; it is assigned again")
            coordinator.leave(expired)
        self._unpublished = self._unpublished or observation.unpublished
        self._publication_due = True
        self._on_change()

    async def _back_off(self, attempts: _FailedAttempts, error: Exception) -> None:
        failure = failure_of(error)
        if failure.type == FailureKind.NOT_LEADER:
            self.lost = error
        elif not is_cancelled():
            await workflow.sleep(attempts.add(failure))

    def _changed(self) -> None:
        self._publication_due = self._restarting = True
        self._on_change()

    def _coordinator(self, subscription: str) -> Coordinator:
        return self._state.coordinators.get(subscription, Coordinator())

    def _watched(self) -> Mapping[str, Coordinator]:
        return {
            name: coordinator for name, coordinator in self._state.coordinators.items() if _count_published(coordinator)
        }

    @property
    def _is_publishing(self) -> bool:
        """There are sessions that are not in the metadata store yet, where observers read them."""
        return any(
            _count_published(coordinator) < len(coordinator.consumers)
            for coordinator in self._state.coordinators.values()
        )

    def _observer_input(self) -> ObserverInput:
        now, watched = workflow.now(), self._watched()
        return ObserverInput(
            subscriptions=tuple(sorted(watched)),
            gone={name: coordinator.disconnected_seconds(now) for name, coordinator in watched.items()},
            drained={name: tuple(sorted(coordinator.drained)) for name, coordinator in watched.items()},
            grace_seconds=self._state.grace.total_seconds(),
            epoch=self._controller.record.epoch,
        )


class _FailedAttempts:
    """Failures of a step in succession, shown to operators.

    Args:
        controller: controller of the topic.
        what: what the step does.
        waits: whether the status shows the reason until an attempt succeeds.

    Attributes:
        repeated: the last failure, if the attempt before it failed too.
    """

    def __init__(self, controller: ControllerSession, what: str, *, waits: bool = False) -> None:
        self._controller = controller
        self._what = what
        self._waits = waits
        self._last: Failure | None = None
        self._backoff = _FIRST_BACKOFF
        self.repeated: Failure | None = None

    def add(self, failure: Failure) -> timedelta:
        """Add a failure, note its reason unless the last one had the same, and return how long to wait."""
        if self._last is None or self._last.why != failure.why:
            self._controller.note(f"could not {self._what}, and tries again: {failure.why}")
        if self._waits:
            self._controller.set_waiting(f"the next attempt to {self._what}, since the last one failed: {failure.why}")
        self.repeated = failure if self._last else None
        self._last = failure
        backoff, self._backoff = self._backoff, min(self._backoff * 2, _MAX_BACKOFF)
        return backoff

    def clear(self) -> None:
        """Forget the failures, since an attempt has succeeded."""
        if self._last is not None and self._waits:
            self._controller.set_waiting("")
        self._last = self.repeated = None
        self._backoff = _FIRST_BACKOFF


def _count_published(coordinator: Coordinator) -> int:
    """Return the number of consumers whose assignment is published, and whose session is stored."""
    return sum(1 for consumer in coordinator.consumers.values() if consumer.segments is not None)
