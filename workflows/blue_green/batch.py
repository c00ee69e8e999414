"""Move one batch of namespaces from a blue Pulsar cluster to a green one (PIP-188)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.blue_green.batch import drain, flip, load, quiesce, undo, verify
from activities.blue_green.copy import backlogs
from models.blue_green.batch import BatchInput
from models.blue_green.copies import FinalCopy
from models.blue_green.input import KIND, IdleSubscriptions
from models.blue_green.phases import BatchPhase
from models.blue_green.state import BatchState
from models.lifecycle.failures import FailedItem, FailedItems, FailureKind
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Undo
from workflows.blue_green.policy import BATCH_POLICIES
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.start import read_start
from workflows.lifecycle.throttled import ThrottledMigration

# Added to the limits of the steps. Writes are held back, and a server that does not answer must not prolong that.
_GRACE = timedelta(minutes=2)


@workflow.defn
class BlueGreenBatch(ThrottledMigration[BatchInput, BatchState]):
    """Move one batch of namespaces; a child of `BlueGreenMigration`."""

    @workflow.init
    def __init__(self, input: BatchInput | Continued) -> None:
        input, state = read_start(BatchInput, BatchState, input)
        super().__init__(
            input,
            state or BatchState(verbs=VerbState(policy=BATCH_POLICIES[BatchPhase.LOAD])),
            kind=KIND,
            target=input.green_cluster,
            first=BatchPhase.LOAD,
            policies=BATCH_POLICIES,
            after_cutover=Undo.COPY_BACK,
        )
        self._names = ", ".join(input.batch)

    @workflow.run
    async def run(self, input: BatchInput | Continued) -> Report[Any, Any]:
        """Move the batch; the report's certificate names the namespaces with faults."""
        del input
        return await self.execute(self._move)

    async def _move(self) -> Report[Any, Any]:
        await self.phases.rollback_on_failure(self._flip_batch, undo=self._undo)
        # Clients connect to green now. A cancellation here would leave them between both clusters.
        await self.phases.shielded(self._finish)
        failed = self.state.certificate.failed
        outcome = Outcome.DONE_WITH_FAILURES if failed else Outcome.DONE
        return self.report(outcome, f"{self._names} {'moved with faults' if failed else 'moved'}")

    async def _flip_batch(self) -> None:
        await self.phases.run(BatchPhase.LOAD, self._load)
        if self.input.idle_subscriptions is IdleSubscriptions.COPY:
            await self.phases.run(BatchPhase.SEED, self._seed)
        await self.phases.run(BatchPhase.QUIESCE, self._quiesce)
        await self.phases.run(BatchPhase.FLIP, self._flip)

    async def _finish(self) -> None:
        await self.phases.run(BatchPhase.DRAIN, self._drain)
        await self.phases.run(BatchPhase.VERIFY, self._verify)

    async def _load(self) -> None:
        call = Call(f"Load all topics of {self._names}")
        loaded = self.state.facts.loaded = await self.activities.run(load.load, call)
        self.state.figures.topics = loaded.topics
        if self.input.idle_subscriptions is not IdleSubscriptions.COPY:
            await self.hold.wait()

    async def _seed(self) -> None:
        if not self.hold.reached:
            await self._copy_backlogs()
        # What is produced during the hold is copied before writes are held back.
        await self.hold.wait(self._copy_backlogs)

    async def _copy_backlogs(self, _: timedelta = timedelta(0)) -> None:
        call = Call(f"Copy the backlogs of idle subscriptions of {self._names}")
        seeded = self.state.facts.seeded = await self.activities.run(backlogs.seed, call)
        self.state.figures.update(copied_messages=seeded.messages, copied_bytes=seeded.size)

    async def _final_copy(self) -> None:
        call = Call(f"Copy the rest of {self._names}", total=self.input.quiesce_timeout + _GRACE)
        copied = self.state.facts.final_copy = await self.activities.run(backlogs.final_copy, call)
        if not copied.in_time:
            raise ApplicationError(
                f"the final copy took {copied.seconds:.0f} s, longer than quiesce_timeout; increase quiesce_timeout, "
                "or move fewer namespaces in one batch",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        self._add_final_copy(copied)

    def _add_final_copy(self, copied: FinalCopy) -> None:
        seconds = (self.state.figures.final_copy_seconds or 0.0) + copied.seconds
        self.state.figures.update(
            final_copy_seconds=seconds, copied_messages=copied.proof.messages, copied_bytes=copied.proof.size
        )
        self.state.certificate.copies = copied.proof

    async def _quiesce(self) -> None:
        call = Call(f"Create on {self.input.green_cluster} what is new on {self.input.cluster}")
        await self.activities.run(quiesce.catch_up, call)
        call = Call(f"Hold back writes to {self._names}", total=self.input.quiesce_timeout + _GRACE)
        quiet = self.state.facts.quiet = await self.activities.run(quiesce.quiesce, call)
        self.state.figures.quiesce_seconds = quiet.seconds
        if quiet.busy:
            raise ApplicationError(
                f"topics still took messages {quiet.seconds:.0f} s after the publish limit was set ({quiet.checks} "
                f"checks): {', '.join(quiet.busy)}. Remove publish rates of these topics, if they have any, or "
                "increase quiesce_timeout",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        if self.input.idle_subscriptions is IdleSubscriptions.COPY:
            await self._final_copy()

    async def _flip(self) -> None:
        # A final copy right before the flag may take as long as in QUIESCE.
        total = self.input.quiesce_timeout + self.input.flip_timeout + _GRACE
        call = Call(f"Redirect the clients of {self._names} to {self.input.green_cluster}", total=total)
        flipped = self.state.facts.flipped = await self.activities.run(flip.flip, call)
        self.state.figures.flip_seconds = flipped.seconds
        if flipped.final_copy:
            self._add_final_copy(flipped.final_copy)
        for note in (*flipped.notes, *flipped.reopened):
            self.board.note(note)

    async def _drain(self) -> None:
        call = Call(f"Wait until {self._names} is drained on {self.input.cluster}")
        drained = self.state.facts.drained = await self.activities.run(drain.drain, call)
        self.state.figures.update(
            drain_seconds=drained.seconds, repaired=drained.repaired, skipped_messages=drained.skipped
        )
        for note in drained.reopened:
            self.board.note(note)
        self.state.certificate.update(missing_clients=drained.missing_count, clients=drained.clients)
        self._name_failed((*drained.remaining, *drained.abandoned))
        self.board.report_failures(
            FailedItems(what="topic(s) not drained on blue", items=drained.remaining, count=drained.remaining_count),
            FailedItems.of("client(s) not seen on green", (FailedItem(path=client) for client in drained.missing)),
        )

    async def _verify(self) -> None:
        check = await self.activities.run(verify.verify, Call(f"Compare {self._names} on both clusters"))
        self.state.certificate.check = check
        self._name_failed(check.faults)
        if check.unused:
            self.board.note(
                f"{self.input.green_cluster} keeps messages for {check.unused_count} subscriptions that have no "
                f"consumer and that {self.input.cluster} did not have. Delete those that you do not need: "
                f"{', '.join(check.unused)}"
            )

    async def _undo(self, cause: str) -> str:
        """Roll the batch back; return why that is impossible, so that the flip continues, or empty."""
        obstacles: list[str] = []

        async def keep_on_blue() -> None:
            undone = await self.activities.run(undo.undo, Call(f"Keep {self._names} on {self.input.cluster}"))
            obstacles[:] = [undone.why] if undone.why else []
            for note in undone.notes:
                self.board.note(note)

        await self.phases.undo(BatchPhase.ROLLBACK, keep_on_blue)
        return f"{obstacles[0]} ({cause})" if obstacles else ""

    def _name_failed(self, items: tuple[FailedItem, ...]) -> None:
        failed = self.state.certificate.failed
        for item in items:
            namespace = "/".join(item.path.partition("://")[2].split("/")[:2])
            failed.setdefault(namespace, str(item))
