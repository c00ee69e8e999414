"""Changes of a topic's segments, phase by phase (PIP-468, "Split Protocol" and "Merge Protocol")."""

from __future__ import annotations

from functools import partial

from temporalio.exceptions import ApplicationError

from activities.topic_controller import split_merge, topic
from models.segments.segment import LayoutError
from models.topic_controller.input import Deletion
from models.topic_controller.record import Change, ControlledLayout, Mutation
from models.topic_controller.sessions import Coordinator
from models.topic_controller.state import LayoutChange, OpenRequest
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import refused
from workflows.topic_controller.controller_session import ControllerSession

DELETE = Call("Delete the topic")


class Changes:
    """Splits and merges, one at a time; what an earlier run began comes first.

    Args:
        controller: of the topic.
    """

    def __init__(self, controller: ControllerSession) -> None:
        self._controller = controller
        self._calls = controller.calls

    async def open(self) -> None:
        """Find the topic or create it, and continue with what another run left under way.

        Raises:
            ApplicationError: it is somebody else's, or another run leads.
        """
        controller = self._controller
        # A run that is continued hands its sessions over; one that was terminated leaves them to the metadata store.
        opening = OpenRequest(recover_sessions=controller.state.record is None)
        async with controller.hold_lock("open the topic"):
            call = Call(f"Open {controller.input.target_name}, or create it")
            opened = await controller.run_step(self._calls.ask(topic.open_topic, call, opening))
            controller.state.subscriptions = opened.subscriptions
            for name, known in opened.sessions.items():
                controller.state.coordinators[name] = Coordinator.from_stored(known)
            controller.set_layout(opened.record)
            for warning in opened.warnings:
                controller.note(warning)
            if opened.record.deleting:
                controller.note("continues with the deletion that an earlier run began")
                await controller.retry_until_done(lambda: self._calls.ask(topic.delete, DELETE, Deletion(force=True)))
                controller.deleted = True
            else:
                await self._finish(opened.record)

    async def make(self, change: Change, segments: tuple[int, ...], *, epoch: int | None = None) -> LayoutChange:
        """Split or merge.

        Args:
            change: which of both.
            segments: ids.
            epoch: of the only layout for which it was meant; None for any that it fits.

        Raises:
            ApplicationError: it does not fit the layout, it could not begin, or another run leads.
        """
        controller = self._controller
        async with controller.exclusive(f"{change} of {' and '.join(map(str, segments))}"):
            while True:
                if epoch not in (None, controller.record.epoch):
                    raise refused(f"the layout was changed meanwhile, and is at epoch {controller.record.epoch}")
                # Another change may have come first.
                self.check(change, segments)
                mutation = Mutation(change=change, segments=segments, epoch=controller.record.epoch)
                prepared = await controller.run_step(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
                if prepared.refused:
                    controller.state.record = prepared.record or controller.record
                    raise refused(prepared.refused, prepared.fault)
                if prepared.record is None:
                    break
                self._require_newer(prepared.record)
                controller.note(f"{mutation}: begun again, since the layout is at epoch {prepared.record.epoch}")
                controller.set_layout(prepared.record)  # mutant: topic-controller/starts-with-a-layout-that-is-gone
                await self._finish(prepared.record)
            controller.state.record = controller.record.with_next_segment(prepared.first_segment).with_pending(mutation)
            return await self._seal_and_commit(mutation)

    def check(self, change: Change, segments: tuple[int, ...]) -> None:
        """Refuse a change that does not fit the layout, as far as this run knows it.

        A run that was reset has forgotten the newest segments; the metadata store is asked for those.

        Raises:
            ApplicationError: it does not.
        """
        record = self._controller.state.record
        if record is None or max(segments) >= record.next_segment_id:
            return
        try:
            Mutation(change=change, segments=segments, epoch=record.epoch).apply(record, 0)
        except LayoutError as error:
            raise refused(str(error), error.fault) from None

    async def _finish(self, found: ControlledLayout) -> None:
        """Continue with a change that somebody began, and did not finish."""
        if pending := found.pending:
            self._controller.note(f"continues with the {pending} that an earlier attempt began")
            prepared = await self._controller.retry_until_done(
                lambda: self._calls.ask(split_merge.prepare, _prepare(pending), pending)
            )
            if prepared.refused:
                self._controller.note(f"the {pending} was given up before it ended anything: {prepared.refused}")
                self._controller.set_layout(prepared.record or found)
                return
            self._controller.state.record = self._controller.record.with_next_segment(prepared.first_segment)
            await self._seal_and_commit(pending)

    async def _seal_and_commit(self, mutation: Mutation) -> LayoutChange:
        """From the end of the first old segment on nothing leads back: its hashes take no messages until the commit."""
        controller = self._controller
        seal, commit = Call(f"{mutation}: end the old segments"), Call(f"{mutation}: publish the new layout")
        begin_again = partial(self._begin_again, mutation)
        await controller.retry_until_done(lambda: self._calls.ask(split_merge.seal, seal, mutation), begin_again)
        committed = await controller.retry_until_done(
            lambda: self._calls.ask(split_merge.commit, commit, mutation), begin_again
        )
        before = controller.record
        record = committed.record or before.with_commit(committed.at_ms)
        controller.state.changes += 1
        controller.set_layout(record)
        controller.note(f"{mutation}: epoch {record.epoch}, {len(record.active)} active segments")
        new = range(before.next_segment_id, record.next_segment_id)
        made = tuple(record.segments[number] for number in new if number in record.segments)
        return LayoutChange(epoch=record.epoch, sealed=mutation.segments, made=made)

    async def _begin_again(self, mutation: Mutation) -> None:
        """Note a change in the metadata store again, where somebody has put the layout of before in its place.

        Raises:
            ApplicationError: another layout is there, or brokers refuse the new segments.
        """
        controller = self._controller
        try:
            prepared = await controller.run_step(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
        except ApplicationError:
            if controller.lost is not None:
                raise
            # The step that follows fails of the same.
            return
        if prepared.refused:
            controller.set_layout(prepared.record or controller.record)
            raise refused(prepared.refused, prepared.fault)
        if prepared.record is not None:
            self._require_newer(prepared.record)
            controller.set_layout(prepared.record)
            raise refused(f"the {mutation} was taken out of the layout, which is at epoch {prepared.record.epoch} now")
        controller.state.record = controller.record.with_next_segment(prepared.first_segment)

    def _require_newer(self, found: ControlledLayout) -> None:
        """Clients never go back in epoch, so a layout that somebody has put back would lead nobody.

        Raises:
            ApplicationError: it is older than the one that this run knows.
        """
        known = self._controller.record
        if found.created_ms == known.created_ms and found.epoch < known.epoch:
            raise refused(found.too_old(known.epoch))


def _prepare(mutation: Mutation) -> Call:
    return Call(f"{mutation}: make the new segments, with a place of each subscription")
