"""Move all traffic of a blue Pulsar cluster to a green one, namespace by namespace (PIP-188)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.blue_green import cluster, precheck, provision
from models.blue_green.input import KIND, BlueGreenInput
from models.blue_green.phases import Phase
from models.blue_green.results import Completion, Precheck, Provision
from models.blue_green.state import BlueGreenState
from models.lifecycle.failures import FailedItems, FailureKind, count_blockers
from models.lifecycle.input import Continued
from models.lifecycle.policy import VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, ProgressUnit, Undo
from models.lifecycle.waves import WavesOutcome, WaveState
from workflows.blue_green.grace import GraceWindow
from workflows.blue_green.policy import POLICIES
from workflows.blue_green.source import NamespaceSource
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.precheck import not_ready, require_ready
from workflows.lifecycle.start import read_start
from workflows.lifecycle.throttled import ThrottledMigration
from workflows.lifecycle.wave_steering import MigrationInWaves, MigrationSteering
from workflows.lifecycle.waves import Waves

_SHOWN = 5
_UNDECIDED = "starts the migration"


@workflow.defn
class BlueGreenMigration(
    MigrationInWaves[BlueGreenInput, BlueGreenState], ThrottledMigration[BlueGreenInput, BlueGreenState]
):
    """Move all traffic of a blue Pulsar cluster to a green one (PIP-188)."""

    @workflow.init
    def __init__(self, input: BlueGreenInput | Continued) -> None:
        input, state = read_start(BlueGreenInput, BlueGreenState, input)
        fresh = BlueGreenState(verbs=VerbState(policy=POLICIES[Phase.PRECHECK]), waves=WaveState.begin(input.waves))
        super().__init__(
            input,
            state or fresh,
            kind=KIND,
            target=input.target_name,
            first=Phase.PRECHECK,
            policies=POLICIES,
            after_cutover=Undo.COPY_BACK,
        )
        self.waves = Waves(
            NamespaceSource(self),
            MigrationSteering(self, ProgressUnit.NAMESPACES),
            self.continuation,
            self.state.waves,
            self.calendar,
        )
        self.on_item_report = self.waves.item_reports
        self.window = GraceWindow(self)

    @workflow.run
    async def run(self, input: BlueGreenInput | Continued) -> Report[Any, Any]:
        """Run the migration, and return the report with figures and certificate."""
        del input
        return await self.execute(self._migrate)

    async def _migrate(self) -> Report[Any, Any]:
        await self.phases.run(Phase.PRECHECK, self._precheck)
        if self.input.dry_run:
            return self.report(Outcome.PLANNED, _plan_summary(self._facts))
        await self.phases.rollback_on_failure(self._move, undo=self._roll_back)
        await self.phases.run(Phase.COMPLETE, self._complete)
        await self.phases.run(Phase.GRACE, self.window.watch)
        cleaned = await self.window.clean_up()
        failed = self.state.waves.counts.failed or self.state.waves.outcome is WavesOutcome.STOPPED
        outcome = Outcome.DONE_WITH_FAILURES if failed else cleaned
        counts = self.state.waves.counts
        return self.report(
            outcome, f"{counts.done} namespaces of {self.input.cluster} are on {self.input.green_cluster}"
        )

    # The phases of PIP-188, and those that PIP-188 leaves to operators ------------------------------------------------

    async def _move(self) -> None:
        await self.phases.run(Phase.PROVISION, self._provision, holds_inside=True)
        await self.phases.run(Phase.FLIP, self._flip)

    async def _precheck(self) -> None:
        call = Call(f"Check {self.input.cluster} and {self.input.green_cluster}")
        facts = self.state.facts.precheck = await self.activities.run(precheck.precheck, call)
        for warning in facts.warnings:
            self.board.note(f"warning: {warning}")
        if self.input.dry_run:
            self.state.figures.update(blockers=count_blockers(facts.blockers), missing=facts.missing)
            self.state.facts.differences = list(facts.differences)
            return
        require_ready(facts.blockers)
        if facts.questions:
            await self.decisions.wait("; ".join(facts.questions), _UNDECIDED)

    async def _provision(self) -> None:
        if not self.hold.reached:
            await self._create_first()
        # Resources that are created on blue while the cut-over is on hold are created on green as well.
        await self.hold.wait(self._create)

    async def _create_first(self) -> None:
        registered = await self.activities.run(cluster.register, Call("Claim both clusters"))
        for note in registered.notes:
            self.board.note(note)
        provisioned = await self._create(timedelta(0))
        if provisioned.blocking:
            raise ApplicationError(
                f"{self.input.green_cluster} has {provisioned.blocking_count} differences: "
                f"{'; '.join(provisioned.blocking[:_SHOWN])}. "
                'Make both clusters equal, or set "align_differences": true',
                type=FailureKind.VERIFICATION_FAILED,
                non_retryable=True,
            )

    async def _create(self, _: timedelta) -> Provision:
        call = Call(f"Create what {self.input.green_cluster} lacks")
        provisioned = await self.activities.run(provision.provision, call)
        created = dict(self.state.figures.created or {})
        for kind, count in provisioned.created.items():
            created[kind] = created.get(kind, 0) + count
        self.state.figures.created = created
        self.state.facts.differences = list(provisioned.blocking)
        return provisioned

    async def _flip(self) -> None:
        if not self.state.waves.counts.begun:
            await self.activities.run(
                cluster.disable_load_shedding, Call(f"Have {self.input.cluster} keep its topics loaded")
            )
        status = await self.waves.run()
        self.state.figures.update(namespaces_moved=status.counts.done, namespaces_failed=status.counts.failed)
        if not status.counts.done:
            reasons = [status.why] if status.why else [str(item) for item in status.first_failures]
            why = f"no namespace was moved: {'; '.join(reasons)}"
            raise ApplicationError(why, type=FailureKind.VERIFICATION_FAILED, non_retryable=True)

    async def _complete(self) -> None:
        call = Call(f"Set the flag of {self.input.cluster}, unless topics there are still in use")
        done = self.state.completion = await self.activities.run(cluster.complete, call)
        self.state.certificate.update(
            blue=self.input.cluster,
            green=self.input.green_cluster,
            cluster_flag=done.flagged,
            completed_at=workflow.now(),
        )
        self.state.facts.not_moved = done.not_moved
        self.board.report_failures(FailedItems(what="topic(s) in use on blue", items=done.busy, count=done.busy_count))
        if done.undrained:
            self.board.note(
                f"load shedding of {self.input.cluster} stays off until the window ends, because these namespaces are "
                f"not drained: {', '.join(done.undrained)}"
            )
        if not done.flagged:
            self.board.note(f"the flag of the whole cluster was not set{_why_not_flagged(self.input, done)}")
        elif done.not_moved:
            self.board.note(
                f"the flag of the whole cluster also redirects clients of {done.not_moved} namespaces that were not "
                f"moved{_first(done.stayed)}: create these on {self.input.green_cluster}"
            )
        if clusters := self._facts.replicated_to:
            self.board.note(
                f"{', '.join(clusters)} may replicate to {self.input.cluster}: before it is switched off, replace its "
                f"addresses there with those of {self.input.green_cluster} (pulsar-admin clusters update), and restart "
                "their brokers, which keep the old ones"
            )

    async def _roll_back(self, cause: str) -> str:
        """Restore the settings of blue, after all batches were rolled back or completed."""

        async def release() -> None:
            await self.waves.drain_all()
            call = Call(f"Restore the settings of {self.input.cluster}")
            released = await self.activities.run(cluster.release, call)
            for note in released.notes:
                self.board.note(note)
            if released.not_released:
                self.board.note(released.not_released)
            if released.moved:
                self.board.note(
                    f"{released.moved} namespaces have moved, and stay on {self.input.green_cluster} ({cause}); to "
                    "move them back, start a migration with blue and green swapped"
                )

        await self.phases.undo(Phase.ROLLBACK, release)
        return ""

    # Inside -----------------------------------------------------------------------------------------------------------

    @property
    def _facts(self) -> Precheck:
        """Result of PRECHECK."""
        facts = self.state.facts.precheck
        assert facts is not None, "PRECHECK has passed"
        return facts


def _why_not_flagged(input: BlueGreenInput, done: Completion) -> str:
    if not input.complete_cluster:
        return ', because "complete_cluster" is false'
    reasons = [f"brokers of {input.cluster} would terminate their own topics ({done.defect})"] if done.defect else []
    reasons += [f"{done.not_moved} namespaces have not moved{_first(done.stayed)}"] if done.not_moved else []
    reasons += [f"{done.busy_count} topics are in use{_first(item.path for item in done.busy)}"] if done.busy else []
    return f": {'; '.join(reasons)}" if reasons else ""


def _first(names: Iterable[str]) -> str:
    named = list(names)[:_SHOWN]
    return f", such as {', '.join(named)}" if named else ""


def _plan_summary(facts: Precheck) -> str:
    if facts.blockers:
        return not_ready(facts.blockers)
    survey = facts.survey
    return (
        f"ready: {survey.namespaces} namespaces with {survey.topics} topics and {survey.subscriptions} subscriptions; "
        f"green lacks {facts.missing} of their resources"
    )
