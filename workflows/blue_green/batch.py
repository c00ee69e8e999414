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
from models.lifecycle.status import Outcome
from workflows.blue_green.policy import BATCH_POLICIES
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.start import read_start

# Beyond the limits that the steps keep themselves: writes are held back, and a server that does not answer must not
# prolong that.
_GRACE = timedelta(minutes=2)


@workflow.defn
class BlueGreenBatch(Migration[BatchInput, BatchState]):
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
        )
        self._names = ", ".join(input.batch)

    @workflow.run
    async def run(self, input: BatchInput | Continued) -> Report[Any, Any]:
        """Move the batch; the report's certificate names the namespaces with faults."""
        del input
        return await self.execute(self._move)

    async def _move(self) -> Report[Any, Any]:
        await self.phases.rollback_on_failure(self._flip_batch, undo=self._undo)
        # Clients are on their way: who broke this off would leave them between both clusters.
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

    async def _seed(self) -> None:
        call = Call(f"Copy the backlogs of idle subscriptions of {self._names}")
        seeded = self.state.facts.seeded = await self.activities.run(backlogs.seed, call)
        self.state.figures.update(copied_messages=seeded.messages, copied_bytes=seeded.size)

    async def _final_copy(self) -> None:
        call = Call(f"Copy the rest of {self._names}", total=self.input.quiesce_timeout + _GRACE)
        carried = self.state.facts.final_copy = await self.activities.run(backlogs.final_copy, call)
        if not carried.in_time:
            raise ApplicationError(
                f"the rest of the copy took longer than quiesce_timeout, {carried.seconds:.0f} s. Give a longer one, "
                "or move fewer namespaces in one batch",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        self._tell_carried(carried)

    def _tell_carried(self, carried: FinalCopy) -> None:
        seconds = (self.state.figures.final_copy_seconds or 0.0) + carried.seconds
        self.state.figures.update(
            final_copy_seconds=seconds, copied_messages=carried.proof.messages, copied_bytes=carried.proof.size
        )
        self.state.certificate.copies = carried.proof

    async def _quiesce(self) -> None:
        await self.activities.run(quiesce.catch_up, Call(f"Bring {self.input.green_cluster} up to date again"))
        call = Call(f"Hold writes to {self._names} back", total=self.input.quiesce_timeout + _GRACE)
        quiet = self.state.facts.quiet = await self.activities.run(quiesce.quiesce, call)
        self.state.figures.quiesce_seconds = quiet.seconds
        if quiet.busy:
            raise ApplicationError(
                f"topics took messages in spite of the limit for {quiet.seconds:.0f} s, seen in {quiet.checks} looks: "
                f"{', '.join(quiet.busy)}. Do they have publish rates of their own? Remove these, or give a "
                "longer quiesce_timeout",
                type=FailureKind.NOT_READY,
                non_retryable=True,
            )
        if self.input.idle_subscriptions is IdleSubscriptions.COPY:
            await self._final_copy()

    async def _flip(self) -> None:
        # Right before the flag a copy may take as long as in QUIESCE.
        total = self.input.quiesce_timeout + self.input.flip_timeout + _GRACE
        call = Call(f"Send the clients of {self._names} to {self.input.green_cluster}", total=total)
        flipped = self.state.facts.flipped = await self.activities.run(flip.flip, call)
        self.state.figures.flip_seconds = flipped.seconds
        if flipped.final_copy:
            self._tell_carried(flipped.final_copy)
        for told in (*flipped.notes, *flipped.reopened):
            self.board.note(told)

    async def _drain(self) -> None:
        call = Call(f"Watch {self._names} until nothing is left on {self.input.cluster}")
        drained = self.state.facts.drained = await self.activities.run(drain.drain, call)
        self.state.figures.update(
            drain_seconds=drained.seconds, repaired=drained.repaired, skipped_messages=drained.skipped
        )
        for told in drained.reopened:
            self.board.note(told)
        self.state.certificate.update(missing_clients=drained.missing_count, clients=drained.clients)
        self._name_failed((*drained.remaining, *drained.abandoned))
        self.board.report_failures(
            FailedItems(what="topic(s) left on blue", items=drained.remaining, count=drained.remaining_count),
            FailedItems.of("client(s) not seen on green", (FailedItem(path=one) for one in drained.missing)),
        )

    async def _verify(self) -> None:
        check = await self.activities.run(verify.verify, Call(f"Compare {self._names} on both sides"))
        self.state.certificate.check = check
        self._name_failed(check.faults)
        if check.unused:
            self.board.note(
                f"{self.input.green_cluster} keeps messages for {check.unused_count} subscriptions that nobody uses, "
                f"and {self.input.cluster} did not have. Delete what is not needed: {', '.join(check.unused)}"
            )

    async def _undo(self, cause: str) -> str:
        """Leave the clients with blue; where that is impossible, why the batch continues to its end."""
        obstacles: list[str] = []

        async def leave_with_blue() -> None:
            undone = await self.activities.run(undo.undo, Call(f"Leave {self._names} with {self.input.cluster}"))
            obstacles[:] = [undone.why] if undone.why else []
            for kept in undone.notes:
                self.board.note(kept)

        await self.phases.undo(BatchPhase.ROLLBACK, leave_with_blue)
        return f"{obstacles[0]} ({cause})" if obstacles else ""

    def _name_failed(self, items: tuple[FailedItem, ...]) -> None:
        failed = self.state.certificate.failed
        for item in items:
            namespace = "/".join(item.path.partition("://")[2].split("/")[:2])
            failed.setdefault(namespace, str(item))
