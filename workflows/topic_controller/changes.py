"""Changes of a topic's segments, phase by phase (PIP-468, "Split Protocol" and "Merge Protocol")."""

from __future__ import annotations

from functools import partial

from temporalio.exceptions import ApplicationError

from activities.topic_controller import split_merge, topic
from models.segments.segment import LayoutError
from models.topic_controller.input import Deletion
from models.topic_controller.record import Change, ControlledLayout, Mutation
from models.topic_controller.sessions import Coordinator
from models.topic_controller.state import LayoutChange, Opening
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import refused
from workflows.topic_controller.lead import Lead

DELETE = Call("Delete the topic")


class Changes:
    """Splits and merges, one at a time; what an earlier run began comes first.

    Args:
        lead: of the topic.
    """

    def __init__(self, lead: Lead) -> None:
        self._lead = lead
        self._calls = lead.calls

    async def open(self) -> None:
        """Find the topic or create it, and continue with what another run left under way.

        Raises:
            ApplicationError: it is somebody else's, or another run leads.
        """
        lead = self._lead
        # A run that is continued hands its sessions over; one that was terminated leaves them to the metadata store.
        opening = Opening(recalls=lead.state.record is None)
        async with lead.first("open the topic"):
            call = Call(f"Open {lead.input.target_name}, or create it")
            opened = await lead.ask(self._calls.ask(topic.open_topic, call, opening))
            lead.state.subscriptions = opened.subscriptions
            for name, known in opened.sessions.items():
                lead.state.coordinators[name] = Coordinator.again(known)
            lead.take(opened.record)
            for warning in opened.warnings:
                lead.note(warning)
            if opened.record.deleting:
                lead.note("continues with the deletion that an earlier run began")
                await lead.insist(lambda: self._calls.ask(topic.delete, DELETE, Deletion(force=True)))
                lead.deleted = True
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
        lead = self._lead
        async with lead.alone(f"{change} of {' and '.join(map(str, segments))}"):
            while True:
                if epoch not in (None, lead.record.epoch):
                    raise refused(f"the layout was changed meanwhile, and is at epoch {lead.record.epoch}")
                # Another change may have come first.
                self.check(change, segments)
                mutation = Mutation(change=change, segments=segments, epoch=lead.record.epoch)
                prepared = await lead.ask(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
                if prepared.refused:
                    lead.state.record = prepared.found or lead.record
                    raise refused(prepared.refused, prepared.fault)
                if prepared.found is None:
                    break
                self._require_newer(prepared.found)
                lead.note(f"{mutation}: begun again, since the layout is at epoch {prepared.found.epoch}")
                lead.take(prepared.found)  # mutant: topic-controller/starts-with-a-layout-that-is-gone
                await self._finish(prepared.found)
            lead.state.record = lead.record.numbered(prepared.first_segment).begun(mutation)
            return await self._seal_and_commit(mutation)

    def check(self, change: Change, segments: tuple[int, ...]) -> None:
        """Refuse a change that does not fit the layout, as far as this run knows it.

        A run that was reset has forgotten the newest segments; the metadata store is asked for those.

        Raises:
            ApplicationError: it does not.
        """
        record = self._lead.state.record
        if record is None or max(segments) >= record.next_segment_id:
            return
        try:
            Mutation(change=change, segments=segments, epoch=record.epoch).applied(record, 0)
        except LayoutError as error:
            raise refused(str(error), error.fault) from None

    async def _finish(self, found: ControlledLayout) -> None:
        """Continue with a change that somebody began, and did not finish."""
        if pending := found.pending:
            self._lead.note(f"continues with the {pending} that an earlier attempt began")
            prepared = await self._lead.insist(lambda: self._calls.ask(split_merge.prepare, _prepare(pending), pending))
            if prepared.refused:
                self._lead.note(f"the {pending} was given up before it ended anything: {prepared.refused}")
                self._lead.take(prepared.found or found)
                return
            self._lead.state.record = self._lead.record.numbered(prepared.first_segment)
            await self._seal_and_commit(pending)

    async def _seal_and_commit(self, mutation: Mutation) -> LayoutChange:
        """From the end of the first old segment on nothing leads back: its hashes take no messages until the commit."""
        lead = self._lead
        seal, commit = Call(f"{mutation}: end the old segments"), Call(f"{mutation}: publish the new layout")
        begin_again = partial(self._begin_again, mutation)
        await lead.insist(lambda: self._calls.ask(split_merge.seal, seal, mutation), begin_again)
        committed = await lead.insist(lambda: self._calls.ask(split_merge.commit, commit, mutation), begin_again)
        before = lead.record
        record = committed.found or before.done(committed.at_ms)
        lead.state.changes += 1
        lead.take(record)
        lead.note(f"{mutation}: epoch {record.epoch}, {len(record.active)} active segments")
        new = range(before.next_segment_id, record.next_segment_id)
        made = tuple(record.segments[number] for number in new if number in record.segments)
        return LayoutChange(epoch=record.epoch, sealed=mutation.segments, made=made)

    async def _begin_again(self, mutation: Mutation) -> None:
        """Note a change in the metadata store again, where somebody has put the layout of before in its place.

        Raises:
            ApplicationError: another layout is there, or brokers refuse the new segments.
        """
        lead = self._lead
        try:
            prepared = await lead.ask(self._calls.ask(split_merge.prepare, _prepare(mutation), mutation))
        except ApplicationError:
            if lead.lost is not None:
                raise
            # The step that follows fails of the same.
            return
        if prepared.refused:
            lead.take(prepared.found or lead.record)
            raise refused(prepared.refused, prepared.fault)
        if prepared.found is not None:
            self._require_newer(prepared.found)
            lead.take(prepared.found)
            raise refused(f"the {mutation} was taken out of the layout, which is at epoch {prepared.found.epoch} now")
        lead.state.record = lead.record.numbered(prepared.first_segment)

    def _require_newer(self, found: ControlledLayout) -> None:
        """Clients never go back in epoch, so a layout that somebody has put back would lead nobody.

        Raises:
            ApplicationError: it is older than the one that this run knows.
        """
        known = self._lead.record
        if found.created_ms == known.created_ms and found.epoch < known.epoch:
            raise refused(found.too_old(known.epoch))


def _prepare(mutation: Mutation) -> Call:
    return Call(f"{mutation}: make the new segments, with a place of each subscription")
