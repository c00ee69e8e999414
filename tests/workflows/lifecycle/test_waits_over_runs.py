"""Waits and verbs of a migration over several runs of its workflow, on Temporal's own server.

The time-skipping server loses queries and refuses verbs that meet the end of a run. Here operators ask and steer
while runs follow each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus
from temporalio.worker import Worker

from models.bookie_cluster.phases import Phase as SwitchPhase
from models.lifecycle.input import Continued
from models.lifecycle.names import TASK_QUEUE
from models.lifecycle.status import Outcome, ProgressReport, Status, WaitKind
from models.lifecycle.verbs import Verb, WindowChange
from models.metadata_store.phases import Phase
from tests.support.stacks import MakeStack
from tests.workflows.bookie_cluster import activities as switch
from tests.workflows.lifecycle.doubles import Hang, Script
from tests.workflows.lifecycle.harness import Harness, Run, on_dev_server, status_of
from tests.workflows.lifecycle.workers import RUNNER
from tests.workflows.metadata_store import activities as metadata

LIMIT = 15
"""Events after which a run continues: few, but Temporal begins no two runs of a workflow within a second."""
RUNS = 2
"""So many runs are seen after the one in which a wait began."""
_TIMEOUT = 120.0

WINDOWS: dict[type[Script], str] = {metadata.Script: "validation_window", switch.Script: "rollback_window"}
LAST_BEFORE_PAUSE: dict[type[Script], str] = {metadata.Script: "pre_copy", switch.Script: "build"}


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts migrations on Temporal's dev server; no time is skipped."""
    async with on_dev_server(make_stack) as ready:
        yield ready


# Windows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", WINDOWS)
async def test_a_moved_window_stays_moved(stage: Harness, script: type[Script]) -> None:
    """The end that the operator gave to a window is the same in all later runs, can be moved again, and ends it."""
    run = await stage.start(script(), history_limit=LIMIT, **{WINDOWS[script]: "PT24H"})
    opened = await run.until(lambda status: "window" in status.deadlines and _waits_for(status, WaitKind.WINDOW))
    later = await _move_window(run, timedelta(hours=50))
    assert later > opened.deadlines["window"]
    for status in await _over_runs(run):
        assert status.deadlines == {"window": later}
        assert status.waiting is not None
        assert (status.waiting.kind, status.waiting.until) == (WaitKind.WINDOW, later)
        assert status.history == opened.history
    end = await _move_window(run, timedelta(seconds=2))
    report = await run.report()
    assert report.outcome is Outcome.DONE
    window = next(entry for entry in report.history if entry.phase in (Phase.VALIDATION, SwitchPhase.ROLLBACK_WINDOW))
    assert window.ended is not None
    assert end <= window.ended < end + timedelta(hours=1)


# Deadlines ----------------------------------------------------------------------------------------------------------


async def test_a_deadline_stays_where_it_was(stage: Harness) -> None:
    """The longest time with writes blocked counts from their block, in each later run with writes blocked."""
    first, last = Hang(), Hang()
    run = await stage.start(metadata.Script(prepare=first, verify=last), history_limit=LIMIT, validation_window="PT0S")
    await first.entered()
    deadlines, before = (await run.status()).deadlines, await _run_id(run)
    first.release()
    await last.entered()
    assert await _run_id(run) != before
    assert (await run.status()).deadlines == deadlines != {}
    last.release()
    assert (await run.report()).outcome is Outcome.DONE


# Pauses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "verb"),
    [
        (metadata.Script, Verb.RESUME),
        (switch.Script, Verb.ROLLBACK),
        pytest.param(metadata.Script, Verb.ROLLBACK, marks=pytest.mark.exhaustive),
        pytest.param(switch.Script, Verb.RESUME, marks=pytest.mark.exhaustive),
    ],
)
async def test_a_pause_holds(stage: Harness, script: type[Script], verb: Verb) -> None:
    """A pause holds through all later runs, only the catch-up runs during it, and its verb works in the last run."""
    hang = Hang()
    steps = script(**{LAST_BEFORE_PAUSE[script]: hang})
    run = await stage.start(steps, history_limit=LIMIT, **{WINDOWS[script]: "PT0S"})
    await hang.entered()
    await run.steer(Verb.PAUSE)
    hang.release()
    held = await run.until(lambda status: _waits_for(status, WaitKind.PAUSE))
    for status in await _over_runs(run):
        assert status.paused
        assert (status.waiting, status.deadlines, status.history) == (held.waiting, {}, held.history)
        assert status.legal_verbs == [Verb.ROLLBACK, Verb.RESUME]
    begun = steps.steps.index(LAST_BEFORE_PAUSE[script])
    assert set(steps.steps[begun + 1 :]) <= {LAST_BEFORE_PAUSE[script], "catch_up"}
    assert (await run.steer(verb)).accepted
    assert (await run.report()).outcome is (Outcome.DONE if verb is Verb.RESUME else Outcome.ROLLED_BACK)


# Between two runs -----------------------------------------------------------------------------------------------------


class Gap:
    """Holds the end of a run for the next one until it is released; for less than Temporal allows a workflow's task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        continue_as_new: Callable[..., NoReturn] = workflow.continue_as_new

        def late(*args: Any, **options: Any) -> NoReturn:
            self.entered.set()
            self.release.wait(1.5)
            continue_as_new(*args, **options)

        monkeypatch.setattr(workflow, "continue_as_new", late)


@pytest.mark.parametrize("give", [Run.signal, Run.steer])
async def test_a_verb_between_two_runs_counts(
    stage: Harness, monkeypatch: pytest.MonkeyPatch, give: Callable[[Run, Verb], Awaitable[Any]]
) -> None:
    """A verb that comes when a run has decided to continue as new takes effect."""
    run = await stage.start(switch.Script(), history_limit=LIMIT, rollback_window="PT24H")
    await run.until(lambda status: _waits_for(status, WaitKind.WINDOW))
    gap = Gap(monkeypatch)
    async with asyncio.timeout(_TIMEOUT):
        while not gap.entered.is_set():
            await run.handle.signal("report_progress", ProgressReport())
        given = asyncio.ensure_future(give(run, Verb.ROLLBACK))
        # A signal is in the history then; an update waits for its answer.
        await asyncio.wait([given], timeout=0.5)
        gap.release.set()
        await given
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


# States -------------------------------------------------------------------------------------------------------------

RELAY_QUEUE = "relay"


@workflow.defn
class Relay:
    """Continues as a migration, with a state that no migration has."""

    @workflow.run
    async def run(self, input: dict[str, Any]) -> None:
        """Continue at once."""
        unknown: Any = Continued(input=input, state={"verbs": "of another version"})
        migration: Any = "MetadataStoreMigration"
        workflow.continue_as_new(unknown, workflow=migration, task_queue=TASK_QUEUE)


async def test_a_state_of_another_version_is_left_to_its_worker(stage: Harness) -> None:
    """A continued run whose state cannot be read fails its task, and not the workflow: another worker may read it."""
    input = {**metadata.Script.input, "cluster": next(stage.clusters)}
    handle = await stage.client.start_workflow("Relay", input, id="relay", task_queue=RELAY_QUEUE)
    run = Run(handle, metadata.Script(), stage.client)
    async with Worker(stage.client, task_queue=RELAY_QUEUE, workflows=[Relay], workflow_runner=RUNNER):
        async with asyncio.timeout(_TIMEOUT):
            while True:
                if EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED in await _newest_events(run):
                    break
                await asyncio.sleep(0.1)
    assert (await run.handle.describe()).status is WorkflowExecutionStatus.RUNNING
    await run.handle.terminate()


async def _newest_events(run: Run) -> set[int]:
    """Return the types of the events of the newest run."""
    newest = run.client.get_workflow_handle(run.handle.id)
    return {event.event_type for event in (await newest.fetch_history()).events}


# Runs ---------------------------------------------------------------------------------------------------------------


async def _over_runs(run: Run) -> list[Status]:
    """Return the status of a migration that waits in each of the next runs."""
    return [await _next_run(run) for _ in range(RUNS)]


async def _next_run(run: Run) -> Status:
    """Give a migration that waits something to take note of, until it continues as new; what the new run says."""
    before = await _run_id(run)
    async with asyncio.timeout(_TIMEOUT):
        while (run_id := await _run_id(run)) == before:
            # One that a run finds at its begin does not yet end it.
            await run.handle.signal("report_progress", ProgressReport())
    # By its own id: the run before answers as long as the new one has not begun.
    newest = run.client.get_workflow_handle(run.handle.id, run_id=run_id)
    return await status_of(newest)


async def _run_id(run: Run) -> str | None:
    """Return the id of the run that is under way."""
    return (await run.handle.describe()).run_id


async def _move_window(run: Run, remaining: timedelta) -> datetime:
    """Change the end of the window; return the new one."""
    return datetime.fromisoformat(await run.update("change_window", WindowChange(remaining=remaining)))


def _waits_for(status: Status, kind: WaitKind) -> bool:
    return status.waiting is not None and status.waiting.kind is kind
