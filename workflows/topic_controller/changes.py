"""Changes of a topic's segments, phase by phase (PIP-468, "Split Protocol" and "Merge Protocol")."""

from __future__ import annotations

from functools import partial

from temporalio.exceptions import ApplicationError

from activities.topic_controller import split_merge, topic
from models.segments.segment import LayoutError, SegmentInfo
from models.topic_controller.input import Deletion
from models.topic_controller.record import Change, ControlledLayout, Mutation
from models.topic_controller.sessions import Coordinator
from models.topic_controller.state import ChangePreview, LayoutChange, OpenRequest
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.caller import by
from workflows.lifecycle.migration import refused
from workflows.lifecycle.tasks import run_to_end
from workflows.topic_controller.controller_session import ControllerSession

DELETE = Call("Delete the topic")


class Changes:
    """Splits and merges of a topic, one at a time; a change that an earlier run started is finished first.

    Args:
        controller: controller of the topic.
    """

    def __init__(self, controller: ControllerSession) -> None:
        self._controller = controller
        self._calls = controller.calls

    async def open(self) -> None:
        """Open the topic or create it, and finish what another run started.

        Raises:
            ApplicationError: the topic is not ours, or another run holds the lease.
            CancelledError: the workflow was cancelled; once the topic is open, what another run started is finished.
        """
        controller = self._controller
        # A continued run has the sessions in its state. After a terminated run they are in the metadata store.
        record = controller.state.record
        opening = OpenRequest(recover_sessions=record is None, epoch=record.epoch if record else 0)
        async with controller.hold_lock("open the topic"):
            call = Call(f"Open {controller.input.target_name}, or create it")
            opened = await controller.run_step(self._calls.ask(topic.open_topic, call, opening))
            controller.state.subscriptions = opened.subscriptions
            for name, stored in opened.sessions.items():
                controller.state.coordinators[name] = Coordinator.from_stored(stored)
            controller.set_layout(opened.record)
            for warning in opened.warnings:
                controller.note(warning)
            await run_to_end(self._continue(opened.record))

    async def make(self, change: Change, segments: tuple[int, ...], *, epoch: int | None = None) -> LayoutChange:
        """Split or merge segments.

        Args:
            change: split or merge.
            segments: ids of the segments.
            epoch: epoch of the layout for which the change was decided; None for any layout that it fits.

        Raises:
            ApplicationError: it does not fit the layout, brokers refuse it, or another run holds the lease.
        """
        controller = self._controller
        async with controller.exclusive(f"{change} of {' and '.join(map(str, segments))}"):
            while True:
                if epoch not in (None, controller.record.epoch):
                    raise refused(f"the layout has changed, and is at epoch {controller.record.epoch}; decide again")
                # Another change may have come first, while this one waited for the lock.
                self.check(change, segments)
                mutation = Mutation(change=change, segments=segments, epoch=controller.record.epoch)
                prepared = await controller.run_step(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
                if prepared.refused:
                    controller.state.record = prepared.record or controller.record
                    raise refused(prepared.refused, prepared.fault)
                if prepared.record is None:
                    break
                self._require_newer(prepared.record)
                controller.note(f"{mutation}: started again, since the layout is at epoch {prepared.record.epoch}")
                controller.set_layout(prepared.record)  # mutant: topic-controller/starts-with-a-layout-that-is-gone
                await self._finish(prepared.record)
            controller.state.record = controller.record.with_next_segment(prepared.first_segment).with_pending(mutation)
            return await self._seal_and_commit(mutation, by())

    def check(self, change: Change, segments: tuple[int, ...]) -> None:
        """Refuse a change that does not fit the layout, as far as this run knows it.

        A run that was reset does not know the newest segments; the metadata store decides about them.

        Raises:
            ApplicationError: the change does not fit.
        """
        record = self._controller.state.record
        if record is None or max(segments) >= record.next_segment_id:
            return
        try:
            Mutation(change=change, segments=segments, epoch=record.epoch).apply(record, 0)
        except LayoutError as error:
            raise refused(str(error), error.fault) from None

    def preview(self, change: Change, segments: tuple[int, ...]) -> ChangePreview:
        """Return what a change would do; nothing is done."""
        state = self._controller.state
        record, why, makes = state.record, "", list[SegmentInfo]()
        if record is None:
            why = "the topic is not open yet, so its layout is not known; ask again"
        else:
            try:
                makes = Mutation(change=change, segments=segments, epoch=record.epoch).new_segments(record)
            except LayoutError as error:
                why = str(error)
        return ChangePreview(
            accepted=not why,
            why=why,
            epoch=(record.epoch if record else -1) + (not why),
            seals=segments,
            makes=tuple(makes),
            subscriptions=len(state.subscriptions),
            consumers=sum(len(coordinator.consumers) for coordinator in state.coordinators.values()),
            after=state.doing,
        )

    async def _continue(self, layout: ControlledLayout) -> None:
        """Finish what an earlier run started."""
        if not layout.deleting:
            await self._finish(layout)
            return
        self._controller.note("continues the deletion that an earlier run started")
        await self._controller.retry_until_done(lambda: self._calls.ask(topic.delete, DELETE, Deletion(force=True)))
        self._controller.deleted = True

    async def _finish(self, layout: ControlledLayout) -> None:
        """Finish the change in progress of a layout, if there is one."""
        if pending := layout.pending:
            self._controller.note(f"continues the {pending} that an earlier attempt started")
            prepared = await self._controller.retry_until_done(
                lambda: self._calls.ask(split_merge.prepare, _prepare(pending), pending)
            )
            if prepared.refused:
                self._controller.note(f"the {pending} was abandoned before it terminated a segment: {prepared.refused}")
                self._controller.set_layout(prepared.record or layout)
                return
            self._controller.state.record = self._controller.record.with_next_segment(prepared.first_segment)
            try:
                await self._seal_and_commit(pending)
            except ApplicationError as error:
                if self._controller.lost is not None:
                    raise
                # Its old segments may be terminated: only a controller can replace them.
                self._controller.note(f"could not finish the {pending}: {error.message}")

    async def _seal_and_commit(self, mutation: Mutation, by_whom: str = "") -> LayoutChange:
        """Terminate the old segments and commit, until it succeeds.

        After the first termination the change cannot be undone: until the commit, no segment takes messages of these
        hashes.

        Args:
            mutation: the change.
            by_whom: the sender that requested it, as `by` names it.
        """
        controller = self._controller
        seal = Call(f"{mutation}: terminate the old segments")
        commit = Call(f"{mutation}: publish the new layout")
        record_again = partial(self._record_again, mutation)
        await controller.retry_until_done(lambda: self._calls.ask(split_merge.seal, seal, mutation), record_again)
        committed = await controller.retry_until_done(
            lambda: self._calls.ask(split_merge.commit, commit, mutation), record_again
        )
        before = controller.record
        record = committed.record or before.with_commit(committed.at_ms)
        controller.state.changes += 1
        controller.set_layout(record)
        controller.note(f"{mutation}{by_whom}: epoch {record.epoch}, {len(record.active)} active segments")
        new = range(before.next_segment_id, record.next_segment_id)
        made = tuple(record.segments[segment_id] for segment_id in new if segment_id in record.segments)
        return LayoutChange(epoch=record.epoch, sealed=mutation.segments, made=made)

    async def _record_again(self, mutation: Mutation) -> None:
        """Record a change in the metadata store again, after an operator has restored the previous layout.

        Raises:
            ApplicationError: there is another layout, or brokers refuse the new segments.
        """
        controller = self._controller
        try:
            prepared = await controller.run_step(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
        except ApplicationError:
            if controller.lost is not None:
                raise
            # The step that is retried fails for the same reason.
            return
        if prepared.refused:
            controller.set_layout(prepared.record or controller.record)
            raise refused(prepared.refused, prepared.fault)
        if prepared.record is not None:
            self._require_newer(prepared.record)
            controller.set_layout(prepared.record)
            raise refused(
                f"the {mutation} was removed from the layout, which is at epoch {prepared.record.epoch}; decide again"
            )
        controller.state.record = controller.record.with_next_segment(prepared.first_segment)

    def _require_newer(self, layout: ControlledLayout) -> None:
        """Refuse a layout that is older than the known one: clients would ignore it.

        Raises:
            ApplicationError: it is older.
        """
        newest = self._controller.record
        if layout.created_ms == newest.created_ms and layout.epoch < newest.epoch:
            raise refused(layout.too_old(newest.epoch))


def _prepare(mutation: Mutation) -> Call:
    return Call(f"{mutation}: create the new segments, with a cursor of each subscription")
