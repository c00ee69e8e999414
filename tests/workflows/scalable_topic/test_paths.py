"""The migration of one topic from its start to its report, without failures and with all that it waits for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from models.lifecycle.failures import Blocker, FailureKind
from models.lifecycle.status import Outcome, Undo, WaitKind
from models.lifecycle.verbs import Verb
from models.scalable_topic.phases import Phase
from models.scalable_topic.results import ClientsGone, DrainedTopic, FlipAnswer, Released, TopicCheck
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.scalable_topic.activities import (
    ANSWERS,
    BEFORE_FLIP,
    CAME,
    FLIPPED,
    READY,
    SCALABLE,
    TOPIC,
    Script,
)

BLOCKER = Blocker(code="COMPACTED", cause="orders is compacted.", cure="end its compaction")
STILL_THERE = ClientsGone(waiting="1 connections of clients that cannot follow: producer p")


async def test_dry_run_gives_the_plan(stage: Harness) -> None:
    """A dry run ends after the precheck, with the planned segments."""
    run = await stage.start(Script(), dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, ["precheck"])
    assert report.summary == (
        "ready: 3 sealed segments with 40 messages of 2 subscriptions, "
        "and new segments 0000-5554-3, 5555-aaa9-4, aaaa-ffff-5"
    )
    assert report.figures["blockers"] == 0
    assert any("warning: orders has no schema" in note for note in report.notes)


async def test_dry_run_names_blockers(stage: Harness) -> None:
    """A dry run that finds blockers succeeds, and names each with its cure."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"blockers": (BLOCKER,)})), dry_run=True)
    report = await run.report()
    assert report.outcome is Outcome.PLANNED
    assert report.summary == "not ready: [COMPACTED] orders is compacted. Cure: end its compaction"
    assert report.figures["blockers"] == 1


async def test_blockers_fail_the_migration(stage: Harness) -> None:
    """Blockers end a migration before anything is written; the failure lists each with its cure."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"blockers": (BLOCKER,)})))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "[COMPACTED] orders is compacted. Cure: end its compaction" in failure.message
    assert run.script.steps == ["precheck"]


async def test_whole_path(stage: Harness) -> None:
    """The topic is guarded, flipped, drained and verified, with figures and certificate, and no grace window."""
    run = await stage.start(Script())
    report = await run.report()
    assert run.script.steps == [*SCALABLE, "forget"]
    assert [(entry.phase, entry.undo, entry.outcome) for entry in report.history] == [
        (Phase.PRECHECK, Undo.FREE, Outcome.DONE),
        (Phase.CLIENTS, Undo.FREE, Outcome.DONE),
        (Phase.GUARD, Undo.FREE, Outcome.DONE),
        (Phase.FLIP, Undo.NONE, Outcome.DONE),
        (Phase.DRAIN, Undo.NONE, Outcome.DONE),
        (Phase.VERIFY, Undo.NONE, Outcome.DONE),
        (Phase.COMPLETE, Undo.NONE, Outcome.DONE),
    ]
    assert (report.outcome, report.summary) == (Outcome.DONE, f"{TOPIC} is scalable, with 3 segments")
    assert report.figures == {
        "backlog_messages": 40,
        "stored_bytes": 5_000,
        "migrate_seconds": 0.5,
        "flip_seconds": 0.75,
        "drain_seconds": 2.0,
    }
    assert report.certificate.pop("completed_at")
    assert report.certificate == {
        "migrated_from": TOPIC,
        "partitions": 3,
        "segments": 3,
        "subscriptions": 2,
        "undrained": {},
        "faults": [],
    }


async def test_origin_of_a_topic_without_partitions(stage: Harness) -> None:
    """The certificate names the regular topic, and that it had no partitions."""
    plain = READY.model_copy(update={"parents": 1, "partitioned": False})
    report = await (await stage.start(Script(precheck=plain))).report()
    assert (report.certificate["migrated_from"], report.certificate["partitions"]) == (TOPIC, 0)


async def test_policies_that_stay_changed_are_reported(stage: Harness) -> None:
    """The report names policies that another client changed, whichever step finds them."""
    steps = ("recover", "guard", "complete")
    run = await stage.start(Script(**{step: Released(notes=(f"retention stays, says {step}",)) for step in steps}))
    report = await run.report()
    assert [step for note in report.notes for step in steps if note.endswith(f"says {step}")] == [*steps]


async def test_it_is_held_before_the_flip(stage: Harness) -> None:
    """By default nothing changes without `proceed`, since there is no rollback afterwards."""
    run = await stage.start(Script(), hold_before_cutover=True)
    status = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    assert (status.phase, status.undo) == (Phase.CLIENTS, Undo.FREE)
    assert status.legal_verbs == [Verb.ROLLBACK, Verb.PAUSE, Verb.PROCEED]
    assert run.script.steps == BEFORE_FLIP[:-1]
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_it_is_paused_before_the_flip(stage: Harness) -> None:
    """A pause during the wait for clients holds the migration before any change, and `resume` continues it."""
    hang = Hang()
    run = await stage.start(Script(await_clients=hang))
    await hang.entered()
    await run.signal(Verb.PAUSE)
    hang.release()
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.PAUSE)
    assert run.script.steps == BEFORE_FLIP[:-1]
    await run.signal(Verb.RESUME)
    assert (await run.report()).outcome is Outcome.DONE


async def test_clients_are_waited_for_as_long_as_the_input_says(stage: Harness) -> None:
    """After `client_timeout` the topic stays regular, and the failure says why."""
    run = await stage.start(Script(await_clients=STILL_THERE), client_timeout="PT2H")
    failure = await run.typed_failure()
    assert failure.type == FailureKind.NOT_READY
    assert failure.message == (
        f"{TOPIC} still has 1 connections of clients that cannot follow: producer p, after 2:00:00. "
        "Nothing was changed. Set a longer client_timeout, or stop or upgrade these clients"
    )
    assert run.script.steps == [*BEFORE_FLIP[:-1], "undo"]
    status = await run.status()
    assert _until(run, "await_clients") == [status.history[1].started + timedelta(hours=2)]


async def test_clients_that_come_before_the_flip_are_waited_for(stage: Harness) -> None:
    """A refused flip has changed nothing; it is repeated when the clients are gone."""
    run = await stage.start(Script(flip=[CAME, CAME, ANSWERS["flip"]]))
    report = await run.report()
    assert run.script.steps == [*BEFORE_FLIP, *2 * ["flip", "await_clients"], *SCALABLE[4:], "forget"]
    assert report.outcome is Outcome.DONE
    # The same reason is noted once.
    assert len([note for note in report.notes if "nothing was changed yet: 1 connections of clients" in note]) == 1


async def test_a_refused_flip_is_repeated_in_a_window(stage: Harness) -> None:
    """A flip that was refused until the end of its change window is repeated in the next window."""
    now = await stage.env.get_current_time()
    opened, closes = now - timedelta(minutes=30), now + timedelta(minutes=30)
    tries: list[datetime] = []

    def flip(at: datetime) -> FlipAnswer:
        tries.append(at)
        return CAME if at < closes else ANSWERS["flip"]

    windows = {"open": [f"{opened.minute} {opened.hour} * * *"], "duration": "1h"}
    run = await stage.start(Script(flip=flip), client_timeout="PT48H", change_windows=windows)
    assert (await run.report()).outcome is Outcome.DONE
    assert len(tries) > 1
    # The window began at a full minute.
    assert not [at for at in tries if closes <= at < closes + timedelta(hours=22, minutes=55)]


async def test_clients_that_came_and_stay_keep_the_topic_regular(stage: Harness) -> None:
    """If new clients do not leave in time, everything is restored, and the topic stays regular."""
    run = await stage.start(Script(flip=CAME, await_clients=[ClientsGone(), STILL_THERE]))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.NOT_READY
    assert "Nothing was changed" in failure.message
    assert run.script.steps == [*BEFORE_FLIP, "flip", "await_clients", "undo"]
    status = await run.status()
    assert [entry.outcome for entry in status.history[-2:]] == [Outcome.FAILED, Outcome.DONE]


async def test_refusals_end_with_the_client_timeout(stage: Harness) -> None:
    """Refusals end with `client_timeout`, even if no client is seen; attempts become less frequent."""
    run = await stage.start(Script(flip=CAME), client_timeout="PT10M")
    failure = await run.typed_failure()
    assert failure.type == FailureKind.NOT_READY
    assert failure.message.startswith(f"{TOPIC} was not changed: 1 connections of clients")
    assert run.script.steps[-1] == "undo"
    # Every five seconds would be 120 times.
    assert 40 < run.script.steps.count("flip") < 100


async def test_a_hold_does_not_shorten_the_wait_for_clients(stage: Harness) -> None:
    """Clients that connect after a long hold have the full `client_timeout` to leave."""
    run = await stage.start(
        Script(flip=[CAME, ANSWERS["flip"]]), hold_before_cutover=True, client_timeout="PT1H", grace_window="PT0S"
    )
    held = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    await stage.env.sleep(timedelta(days=2))
    await run.signal(Verb.PROCEED)
    report = await run.report()
    first, second = _until(run, "await_clients")
    flip = next(entry for entry in report.history if entry.phase == Phase.FLIP)
    assert first == held.history[1].started + timedelta(hours=1)
    assert second == flip.started + timedelta(hours=1)


async def test_a_difference_to_the_plan_is_a_failure(stage: Harness) -> None:
    """A layout that differs from the plan is noted, is in the certificate, and changes the outcome."""
    odd = FLIPPED.model_copy(update={"faults": ("epoch is 1, and not 0",)})
    run = await stage.start(Script(flip=FlipAnswer(flipped=odd)))
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["faults"] == ["epoch is 1, and not 0"]
    assert any("the layout is not as planned: epoch is 1, and not 0" in note for note in report.notes)


async def test_the_drain_is_ended_by_proceed(stage: Harness) -> None:
    """`proceed` ends the wait for old messages; the remaining ones are counted again and reported."""
    hang = Hang()
    drained = DrainedTopic(seconds=9.0, backlogs={"billing": 7})
    run = await stage.start(Script(drain=[hang, drained]))
    await hang.entered()
    status = await run.status()
    assert status.legal_verbs == [Verb.PROCEED]
    await run.signal(Verb.PROCEED, "billing is gone for good")
    report = await run.report()
    assert run.script.steps == [*SCALABLE[:6], "drain", "verify", "complete", "forget"]
    assert run.script.cancelled == ["drain"]
    first, second = _until(run, "drain")
    assert first - second > timedelta(minutes=59)
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["undrained"] == {"billing": 7}
    assert any(
        "billing has 7 unconsumed old messages, which stay available to its consumers" in note for note in report.notes
    )
    assert any("the wait for old messages was ended by `proceed`" in note for note in report.notes)


async def test_the_drain_is_bounded(stage: Harness) -> None:
    """After `drain_timeout` the remaining old messages are reported, and policies are restored."""
    run = await stage.start(Script(drain=DrainedTopic(seconds=600.0, backlogs={"billing": 7})), drain_timeout="PT10M")
    report = await run.report()
    drain = next(entry for entry in report.history if entry.phase == Phase.DRAIN)
    assert _until(run, "drain") == [drain.started + timedelta(minutes=10)]
    assert run.script.steps == [*SCALABLE, "forget"]
    assert (report.outcome, report.certificate["undrained"]) == (Outcome.DONE_WITH_FAILURES, {"billing": 7})


async def test_faults_are_an_alarm(stage: Harness) -> None:
    """Faults of VERIFY are shown in red, are in the certificate, and policies are restored."""
    fault = "billing has no cursor on segment 0000-5554-3"
    run = await stage.start(Script(verify=TopicCheck(faults=(fault,), segments=3, subscriptions=2, pruned=0)))
    report = await run.report()
    assert (await run.status()).alarms == [fault]
    assert run.script.steps == [*SCALABLE, "forget"]
    assert (report.outcome, report.certificate["faults"]) == (Outcome.DONE_WITH_FAILURES, [fault])


async def test_a_policy_that_is_not_set_is_a_fault(stage: Harness) -> None:
    """Faults of COMPLETE are an alarm, and follow those of VERIFY in the certificate."""
    checked = TopicCheck(faults=("no cursor",), segments=3, subscriptions=2, pruned=0)
    refused = Released(notes=("retention stays",), faults=("brokers refuse the auto-scale policy",))
    run = await stage.start(Script(verify=checked, complete=refused))
    report = await run.report()
    assert (await run.status()).alarms == ["no cursor", "brokers refuse the auto-scale policy"]
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["faults"] == ["no cursor", "brokers refuse the auto-scale policy"]
    assert any("retention stays" in note for note in report.notes)


@pytest.mark.parametrize("step", SCALABLE)
async def test_a_step_that_fails_temporarily_is_retried(stage: Harness, step: str) -> None:
    """A server that is down for a while only costs time."""
    script = Script(**{step: [TimeoutError("broker-2 does not answer"), ANSWERS[step]]})
    report = await (await stage.start(script)).report()
    assert report.outcome is Outcome.DONE
    assert script.stages == [*SCALABLE, "forget"]


def _until(run: Run, step: str) -> list[Any]:
    """Return the deadline of each call of a step."""
    return [call.args[0] for call in run.script.calls if call.step == step]
