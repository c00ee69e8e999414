"""Migrations that continue as new after every few events: nothing is lost, and nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.results import LedgersDeleted
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.phases import Phase
from tests.workflows.blue_green import activities as blue_green
from tests.workflows.bookie_cluster import activities as switch
from tests.workflows.lifecycle.doubles import Hang, Script
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store import activities as metadata

LIMIT = 3
"""Events after which a run continues: a new one before nearly each phase."""

BROKEN = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)

REMOVE = {"cleanup": "remove", "cleanup_at_window_end": True}

WHOLE: dict[str, tuple[Callable[[], Script], dict[str, Any]]] = {
    "metadata live": (metadata.Script, {"validation_window": "PT1H", **REMOVE}),
    "metadata offline": (metadata.Script, {"validation_window": "PT1H", "mode": "offline"}),
    "switch restart": (switch.Script, {"rollback_window": "PT1H", **REMOVE}),
    "switch attribution": (switch.AttributionScript, {"rollback_window": "PT1H", "advance_ids": True}),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_every_phase_survives(stage: Harness, name: str) -> None:
    """A migration in many runs takes the same activities, and ends with the same phases, figures and certificate."""
    script, fields = WHOLE[name]
    single = await stage.start(script(), **fields)
    many = await stage.start(script(), history_limit=LIMIT, **fields)
    expected, report = await single.report(), await many.report()
    assert report.outcome is Outcome.DONE
    assert await many.runs() >= len(report.history)
    assert _without_census(many.script) == _without_census(single.script)
    assert [(entry.phase, entry.outcome) for entry in report.history] == [
        (entry.phase, entry.outcome) for entry in expected.history
    ]
    assert _stable(report.figures) == _stable(expected.figures)
    assert report.certificate.keys() == expected.certificate.keys()
    assert [note.partition("Z ")[2] for note in report.notes] == [note.partition("Z ")[2] for note in expected.notes]


@pytest.mark.parametrize(("script", "failing"), [(metadata.Script, "verify"), (switch.Script, "start_brokers")])
async def test_the_rollback_of_a_failure_survives(stage: Harness, script: type[Script], failing: str) -> None:
    """A failure is undone over several runs, in the same order as in one, and the migration fails for its reason."""
    answers: dict[str, Any] = {failing: BROKEN if script is metadata.Script else [BROKEN, switch.ANSWERS[failing]]}
    single, many = await stage.start(script(**answers)), await stage.start(script(**answers), history_limit=LIMIT)
    expected, failure = await single.typed_failure(), await many.typed_failure()
    assert (failure.type, failure.message) == (expected.type, expected.message)
    assert await many.runs() > 2
    assert many.script.steps == single.script.steps
    assert (await many.status()).outcome is Outcome.FAILED


async def test_a_rollback_survives(stage: Harness) -> None:
    """A rollback undoes the same as in one run, though many runs came before it."""
    # While an activity runs no new run begins, so the signal meets the one that it was sent to.
    hang = Hang()
    script = switch.Script(start_brokers=[hang, switch.ANSWERS["start_brokers"]])
    run = await stage.start(script, history_limit=LIMIT)
    await hang.entered()
    assert await run.runs() > 2
    await run.signal(Verb.ROLLBACK)
    report = await run.report()
    assert report.outcome is Outcome.ROLLED_BACK
    assert run.script.steps[-len(switch.STOPPED_BACK) - 1 : -1] == switch.STOPPED_BACK


_PARTS: dict[str, tuple[Callable[[], Script], str, dict[str, Any]]] = {
    "metadata": (
        lambda: metadata.Script(
            clean_source=[metadata.CleanupStep(removed=7, remaining=remaining) for remaining in (14, 7, 0)]
        ),
        "clean_source",
        {"validation_window": "PT1H", **REMOVE},
    ),
    "switch": (
        lambda: switch.Script(
            delete_ledgers=[LedgersDeleted(deleted=400, remaining=remaining) for remaining in (700, 300, 0)]
        ),
        "delete_ledgers",
        {"rollback_window": "PT1H", **REMOVE},
    ),
    "blue-green": (
        lambda: blue_green.Script(
            clean_up=[blue_green.CleanupStep(deleted=4, remaining=remaining) for remaining in (8, 4, 0)]
        ),
        "clean_up",
        {"grace_window": "PT1H", **REMOVE},
    ),
}


@pytest.mark.parametrize("name", _PARTS)
async def test_a_cleanup_in_parts_survives(stage: Harness, name: str) -> None:
    """A cleanup in many runs deletes each part once, and counts and reports the same as in one run."""
    script, step, fields = _PARTS[name]
    single, many = await stage.start(script(), **fields), await stage.start(script(), history_limit=LIMIT, **fields)
    expected, report = await single.report(), await many.report()
    assert report.outcome is expected.outcome is Outcome.DONE
    assert many.script.steps.count(step) == single.script.steps.count(step) == 3
    assert _stable(report.figures) == _stable(expected.figures)
    assert [note.partition("Z ")[2] for note in report.notes] == [note.partition("Z ")[2] for note in expected.notes]


async def test_a_window_spans_runs(stage: Harness) -> None:
    """A window ends at its end, however many runs that takes."""
    run = await stage.start(metadata.Script(), validation_window="PT3H", history_limit=LIMIT)
    window = (await run.report()).history[-1]
    assert window.phase == Phase.VALIDATION
    assert 3 * 3600 <= window.seconds(window.started) < 3 * 3600 + 60
    assert await run.runs() > 12


def _without_census(script: Script) -> list[str]:
    # A new run in a window takes the census again.
    return [step for step in script.steps if step not in ("census", "take_census")]


def _stable(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if not name.endswith("seconds")}
