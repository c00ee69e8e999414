"""Migrations to scalable topics that continue as new after every few events lose nothing, and run nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.results import ClientsGone, DrainedTopic, Released
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.activities import (
    ANSWERS,
    BEFORE_FLIP,
    CAME,
    REMOVE,
    SCALABLE,
    TURNED_OUT,
    NamespaceScript,
    Script,
)

LIMIT = 3
"""Events after which a run continues: a new one before nearly each activity."""

BROKEN = ApplicationError("broken", type=FailureKind.CONFLICT, non_retryable=True)
LEFT = DrainedTopic(seconds=9.0, backlogs={"billing": 7})

WHOLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "refused flips": ({"flip": [CAME, CAME, ANSWERS["flip"]]}, {}),
    "undrained": ({"drain": LEFT}, {}),
    "window and cleanup": ({}, {**REMOVE, "grace_window": "PT1H"}),
    "window": ({}, {"cleanup": "remove", "grace_window": "PT1H"}),
    "failed cleanup": ({"clean_up": BROKEN}, {**REMOVE, "grace_window": "PT1H"}),
    "notes": ({step: Released(notes=(f"kept by {step}",)) for step in ("recover", "guard", "complete")}, {}),
    "scalable all the same": ({"flip": BROKEN, "undo": TURNED_OUT}, {}),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_every_phase_survives(stage: Harness, name: str) -> None:
    """A migration in many runs has the same steps, phases, figures, certificate and notes as in one run."""
    answers, fields = WHOLE[name]
    single = await stage.start(Script(**answers), **fields)
    many = await stage.start(Script(**answers), history_limit=LIMIT, **fields)
    expected, report = await single.report(), await many.report()
    assert await many.runs() > len(report.history) // 2
    assert many.script.steps == single.script.steps
    assert [(entry.phase, entry.outcome) for entry in report.history] == [
        (entry.phase, entry.outcome) for entry in expected.history
    ]
    assert all(entry.ended for entry in report.history)
    assert report.figures == expected.figures
    assert _without_time(report.certificate) == _without_time(expected.certificate)
    assert (report.outcome, _texts(report.notes)) == (expected.outcome, _texts(expected.notes))


@pytest.mark.parametrize("step", ["guard", "drain", "verify"])
async def test_a_failure_survives(stage: Harness, step: str) -> None:
    """After a failure, many runs restore policies in the same order as one, and the workflow fails for its reason."""
    single, many = (
        await stage.start(Script(**{step: BROKEN})),
        await stage.start(Script(**{step: BROKEN}), history_limit=LIMIT),
    )
    expected, failure = await single.typed_failure(), await many.typed_failure()
    assert (failure.type, failure.message) == (expected.type, expected.message)
    assert await many.runs() > 2
    assert many.script.steps == single.script.steps
    status = await many.status()
    assert status.outcome is Outcome.FAILED
    assert all(entry.ended for entry in status.history)


async def test_a_rollback_survives(stage: Harness) -> None:
    """A rollback continues in another run than the one that received it."""
    hang = Hang()
    run = await stage.start(Script(await_clients=hang), history_limit=LIMIT)
    await hang.entered()
    before = await run.runs()
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP[:-1], "undo"]
    assert before > 1


@pytest.mark.exhaustive  # the time-skipping server forgets queries between two runs, on a busy machine
async def test_a_rollback_survives_a_refused_flip(stage: Harness) -> None:
    """Every run knows that a rollback is legal while the flip waits for clients."""
    hang = Hang()
    run = await stage.start(Script(flip=CAME, await_clients=[ClientsGone(), hang]), history_limit=LIMIT)
    await _try_again(run)
    await hang.entered()
    assert (await run.status()).legal_verbs == [Verb.ROLLBACK]
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert run.script.steps == [*BEFORE_FLIP, "flip", "await_clients", "undo"]


async def test_the_end_of_a_drain_survives(stage: Harness) -> None:
    """A drain that was ended by `proceed` stays ended, and is reported once."""
    hang = Hang()
    run = await stage.start(Script(drain=[hang, LEFT]), history_limit=LIMIT)
    await hang.entered()
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert run.script.steps == [*SCALABLE[:6], "drain", "verify", "complete", "forget"]
    assert len([note for note in report.notes if "was ended by `proceed`" in note]) == 1


@pytest.mark.exhaustive  # the time-skipping server forgets queries between two runs, on a busy machine
async def test_a_hold_survives(stage: Harness) -> None:
    """A held migration stays held over any number of runs."""
    run = await stage.start(Script(), history_limit=LIMIT, hold_before_cutover=True)
    await _held(run)
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps == [*SCALABLE, "forget"]


async def test_a_migration_of_many_survives(stage: Harness) -> None:
    """Waves continue where they were; the first run overrides policies, and the last one restores them."""
    script = NamespaceScript()
    run = await stage.start(script, history_limit=LIMIT, **REMOVE, grace_window="PT1H")
    report = await run.report()
    assert await run.runs() > 5
    assert script.own_steps == ["survey", "recover_all", "hold_all", "release_all", "clean_up_all"]
    assert (report.figures["topics_scalable"], report.figures["deleted_topics"]) == (5, 5)
    assert report.certificate["segments"] == 15
    assert report.outcome is Outcome.DONE


async def _try_again(run: Run) -> None:
    """Start the next attempt of the flip, as an operator can do."""
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.RETRY)
    await run.signal(Verb.PROCEED)


async def _held(run: Run) -> None:
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)


def _without_time(certificate: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in certificate.items() if name != "completed_at"}


def _texts(notes: list[str]) -> list[str]:
    return [note.partition("Z ")[2] for note in notes]
