"""Hooks of running migrations: order, failures that block nothing, vetoes and their override, and many runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from models.hooks import Hook
from models.lifecycle.audit import Audit
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.verbs import HoldChange, Verb, VerbRequest
from models.metadata_store.phases import Phase
from tests.support.lifecycle.hook_receiver import HookReceiver, Response
from tests.workflows.blue_green import activities as blue_green
from tests.workflows.bookie_cluster import activities as switch
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.lifecycle.one_task import in_one_task
from tests.workflows.metadata_store.activities import Script, between_rounds
from tests.workflows.scalable_topic.activities import TOPICS, NamespaceScript
from workflows.lifecycle import hooks

REFUSED = Response(409, "freeze until Monday", {"Retry-After": "300"})


@pytest.fixture
def pager(stage: Harness, tmp_path: Path) -> Iterator[HookReceiver]:
    """A receiver with TLS, which the workers know as `pager`, and as `gate` with a veto."""
    with HookReceiver(tmp_path) as running:
        stage.hooks["pager"] = Hook.model_validate(running.settings())
        stage.hooks["gate"] = Hook.model_validate(running.settings(veto=True, events=["migration.ended"]))
        yield running
    stage.hooks.clear()


def _numbers(receiver: HookReceiver) -> list[int]:
    return [int(event["sequence"]) for event in receiver.events]


def _types(receiver: HookReceiver) -> list[str]:
    return [event["type"].removeprefix("pulsar-migrate.") for event in receiver.events]


def _is_vetoed(status: Status) -> bool:
    return status.waiting is not None and status.waiting.kind is WaitKind.VETO


async def _start(stage: Harness, *hooks: str, **more: Any) -> Run:
    return await stage.start(Script(), hooks=hooks, validation_window="PT0S", **more)


async def test_all_events_in_their_order(stage: Harness, pager: HookReceiver, command: Client) -> None:
    """A hook gets each phase, wait and request with who and why, numbered without a gap, and the end as the last."""
    run = await _start(stage, "pager", hold_before_cutover=True)
    await run.until(between_rounds(run.script))
    with pytest.raises(Exception, match="Workflow update failed"):
        await run.update("steer", VerbRequest(verb=Verb.CLEANUP))
    handle: Any = command.get_workflow_handle(run.handle.id)
    await handle.execute_update("steer", VerbRequest(verb=Verb.PROCEED, reason="OPS-1"))
    report = await run.report()
    assert pager.faults == []
    assert _numbers(pager) == [*range(1, len(pager.events) + 1)]
    assert len({event["id"] for event in pager.events}) == len(pager.events)
    phases = [entry.phase for entry in report.history]
    assert pager.texts("phase.started") == [f"phase {phase} starts" for phase in phases]
    assert pager.texts("phase.ended") == [f"phase {phase} ends, done" for phase in phases]
    held = next(event["data"] for event in pager.events if event["type"].endswith("wait.started"))
    assert held["waiting"]["kind"] == "hold"
    assert "proceed" in held["waiting"]["ends_on"]
    assert "rollback" in held["legal_verbs"]
    refused, accepted = (event["data"] for event in pager.events if ".request." in event["type"])
    assert (refused["request"], accepted["request"], accepted["reason"]) == ("steer", "proceed", "OPS-1")
    assert accepted["by"].startswith("pulsar-migrate:")
    end = pager.events[-1]
    assert (end["type"], end["data"]["outcome"]) == ("pulsar-migrate.migration.ended", "done")
    assert end["data"]["workflow_id"] == run.handle.id


async def test_a_failing_hook_blocks_nothing(stage: Harness, pager: HookReceiver) -> None:
    """A migration does not wait for a hook that fails; its status and notes say what was not delivered, and why."""
    stage.hooks["chat"] = Hook(command=("sh", "-c", "exit 9"))
    run = await _start(stage, "pager", "chat")
    report = await run.report()
    assert report.outcome is Outcome.DONE
    # Not of the report: its command may end after the last phase.
    status = await run.status()
    assert any(
        "hook chat: events are not delivered, and delivery is repeated: ended with 9" in note for note in status.notes
    )
    working, failing = status.hooks
    assert (working.name, working.pending, working.lost, working.failing_since) == ("pager", 0, 0, None)
    assert (failing.name, failing.pending) == ("chat", len(pager.events))
    assert failing.failing_since is not None
    assert status.notes[-1].endswith("not delivered: ended with 9; the worker's log has what it printed")
    assert _types(pager)[-1] == "migration.ended"


async def test_a_hook_that_fails_for_days_does_not_fill_the_history(stage: Harness) -> None:
    """While a migration waits for a decision, which ends no run, deliveries are repeated more and more rarely."""
    stage.hooks["chat"] = Hook(command=("sh", "-c", "exit 9"))
    precheck = blue_green.READY.model_copy(update={"questions": ("2 readers keep message ids outside of Pulsar",)})
    run = await stage.start(blue_green.Script(precheck=precheck), hooks=["chat"])
    await run.until(lambda status: bool(status.waiting and status.waiting.kind is WaitKind.DECISION))
    for _ in range(12):
        await stage.env.sleep(timedelta(hours=2))
    # Ten minutes apart, deliveries of a day would be 1,600 events.
    assert len((await run.handle.fetch_history()).events) < 800
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_a_hook_that_failed_for_days_gets_its_events_within_an_hour(stage: Harness, tmp_path: Path) -> None:
    """A hook that is repaired after days gets its events within an hour."""
    repaired = tmp_path / "repaired"
    stage.hooks["chat"] = Hook(command=("sh", "-c", f"test -e {repaired}"))
    precheck = blue_green.READY.model_copy(update={"questions": ("2 readers keep message ids outside of Pulsar",)})
    run = await stage.start(blue_green.Script(precheck=precheck), hooks=["chat"])
    await run.until(lambda status: bool(status.waiting and status.waiting.kind is WaitKind.DECISION))
    for _ in range(4):
        await stage.env.sleep(timedelta(days=1))
    repaired.touch()
    await stage.env.sleep(timedelta(minutes=65))
    await run.until(lambda status: status.hooks[0].pending == 0)
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_alarms_are_events(stage: Harness, pager: HookReceiver) -> None:
    """An alarm is sent once, to a hook that is named twice too."""
    fields = {"hooks": ["pager", "pager"], "rollback_window": "PT0S", "skip_idgen_precheck": True}
    run = await stage.start(switch.Script(), history_limit=0, **fields)
    assert (await run.report()).outcome is Outcome.DONE
    assert pager.texts("alarm.raised") == ["LAB ONLY: ids are not checked; messages can be lost"]
    assert _numbers(pager) == [*range(1, len(pager.events) + 1)]
    ended = [event["data"]["waiting"]["kind"] for event in pager.events if event["type"].endswith("wait.ended")]
    assert ended == [
        event["data"]["waiting"]["kind"] for event in pager.events if event["type"].endswith("wait.started")
    ]


async def test_a_hook_that_comes_back_gets_all(stage: Harness, pager: HookReceiver) -> None:
    """An event that a hook refused is repeated, in the same order, until it takes it."""
    answers = iter([Response(503)] * 3)
    pager.respond = lambda _: next(answers, Response())
    run = await _start(stage, "pager", hold_before_cutover=True)
    await run.until(lambda status: bool(status.hooks and status.hooks[0].failing_since))
    # Between two rounds of ten seconds: the test server refuses to cancel a timer that has just fired.
    await stage.env.sleep(timedelta(seconds=55))
    status = await run.until(lambda status: status.hooks[0].failing_since is None)
    assert status.hooks[0].pending == 0
    assert any("hook pager: events are delivered again" in note for note in status.notes)
    assert _numbers(pager) == [1, 1, 1, *range(1, len(pager.events) - 2)]
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_unknown_hooks_end_a_migration_at_once(stage: Harness, pager: HookReceiver) -> None:
    """A migration whose hook no worker knows does not start, and says what to set."""
    run = await _start(stage, "pager", "missing")
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "no hook called 'missing'; they have gate, pager. Cure: set" in failure.message
    assert (run.script.steps, pager.events) == ([], [])


async def test_a_veto_holds_the_cutover(stage: Harness, pager: HookReceiver) -> None:
    """A refused cut-over waits with the hook's reason, nothing is blocked, and the hook is asked again when it said."""
    pager.respond = lambda event: REFUSED if event["type"].endswith("asked") else Response()
    run = await _start(stage, "gate")
    status = await run.until(_is_vetoed)
    assert status.waiting is not None
    assert status.waiting.why == "the end of the veto of gate: freeze until Monday"
    assert status.waiting.ends_on == (Verb.PROCEED, Verb.ROLLBACK)
    assert status.waiting.until is not None
    assert 299 <= (status.waiting.until - status.waiting.since).total_seconds() <= 301
    assert status.phase == Phase.CATCH_UP
    await stage.env.sleep(timedelta(minutes=11))
    status = await run.until(lambda status: len(pager.events) >= 3)
    assert _is_vetoed(status)
    assert "prepare" not in run.script.steps
    pager.respond = lambda _: Response()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    # The last changes are copied between the answer that ends the veto and the one that counts.
    assert _types(pager)[-3:] == ["cutover.asked", "cutover.asked", "migration.ended"]
    assert any("the cut-over may start: allowed by gate" in note for note in report.notes)
    assert sum("veto of gate" in note for note in report.notes) == 1
    assert len({event["id"] for event in pager.events}) == len(pager.events)


async def test_an_override_needs_a_reason(stage: Harness, pager: HookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person overrides a veto by `proceed` with a reason, not at once, and it is in the audit trail."""
    # Longer than a busy machine takes to be refused. It ends between two rounds of ten seconds, see above.
    monkeypatch.setattr(hooks, "OVERRIDE_DELAY", timedelta(seconds=55))
    pager.respond = lambda event: REFUSED if event["type"].endswith("asked") else Response()
    run = await _start(stage, "gate")
    await run.until(_is_vetoed)
    with_reason = VerbRequest(verb=Verb.PROCEED, reason="OPS-2")
    assert "this gate has just closed" in (await run.refusal("steer", with_reason)).message
    await stage.env.sleep(hooks.OVERRIDE_DELAY)
    for without in ("", " "):
        refusal = await run.refusal("steer", VerbRequest(verb=Verb.PROCEED, reason=without))
        assert "`proceed` needs a reason here: the cut-over begins against the veto of gate" in refusal.message
    await run.signal(Verb.PROCEED)
    assert _is_vetoed(await run.status())
    await run.update("steer", with_reason)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert any("the cut-over starts against the veto of gate: freeze until Monday" in note for note in report.notes)
    audit = Audit.model_validate(await run.handle.query("audit"))
    assert (audit.entries[-1].what, audit.entries[-1].reason, audit.entries[-1].accepted) == ("proceed", "OPS-2", True)
    assert _types(pager) == ["cutover.asked", "migration.ended"]


async def test_an_override_does_not_release_a_later_hold(
    stage: Harness, pager: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `proceed` that overrides a veto keeps that effect, and a hold that is answered right after it still holds."""
    pager.respond = lambda event: REFUSED if event["type"].endswith("asked") else Response()
    run = await _start(stage, "gate")
    await run.until(_is_vetoed)
    # See above.
    await stage.env.sleep(timedelta(seconds=55))
    async with in_one_task(run, monkeypatch):
        await run.signal(Verb.PROCEED, "OPS-4")
        answer = asyncio.create_task(run.update("hold_before_cutover", HoldChange(hold=True)))
    await answer
    assert (await run.status()).cutover.hold
    status = await run.until(lambda status: bool(status.waiting and status.waiting.kind is WaitKind.HOLD))
    assert any("the cut-over starts against the veto of gate" in note for note in status.notes)
    await run.until(between_rounds(run.script))
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_without_an_answer_there_is_no_cutover(stage: Harness, pager: HookReceiver) -> None:
    """A hook that does not answer refuses, and a rollback ends the wait."""
    del pager
    stage.hooks["gone"] = Hook(command=("/no/such/program",), veto=True)
    run = await _start(stage, "gone", "gate")
    idle = between_rounds(run.script)
    status = await run.until(lambda status: _is_vetoed(status) and idle(status))
    assert status.waiting is not None
    assert status.waiting.why.startswith("the end of the veto of gone: ended with 127")
    await run.signal(Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK
    assert "prepare" not in run.script.steps


async def test_each_wave_is_asked_for(stage: Harness, pager: HookReceiver) -> None:
    """Before the first wave and before each further one hooks are asked; a veto lets no topic of the wave start."""

    def respond(event: dict[str, Any]) -> Response:
        return REFUSED if event["data"]["text"] == "may wave 2 start?" else Response()

    pager.respond = respond
    script = NamespaceScript(names=TOPICS[:3])
    waves = {"canary": 1, "wave_size": 1, "gate": "none", "deadline": "PT48H"}
    run = await stage.start(script, hooks=["gate"], waves=waves)
    status = await run.until(_is_vetoed)
    assert status.waiting is not None
    assert [script.steps_of(topic) != [] for topic in TOPICS[:3]] == [True, True, False]
    await stage.env.sleep(hooks.OVERRIDE_DELAY)
    await run.update("steer", VerbRequest(verb=Verb.PROCEED, reason="OPS-3"))
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert pager.texts("cutover.asked") == ["may the cut-over start?", "may wave 1 start?", "may wave 2 start?"]
    assert any("wave 2 starts against the veto of gate" in note for note in report.notes)
    assert all(call.input.model_dump()["hooks"] == () for call in script.calls if call.step == "flip")


@pytest.mark.parametrize("overridden", [False, True])
async def test_windows_that_close_during_a_question(stage: Harness, pager: HookReceiver, *, overridden: bool) -> None:
    """Hooks are asked again when a wave may start hours after their answer; the override of a veto counts for it."""
    asked, answers = threading.Event(), threading.Event()

    def respond(event: dict[str, Any]) -> Response:
        if event["data"]["text"] != "may wave 1 start?":
            return Response()
        asked.set()
        answers.wait(60)
        return REFUSED if overridden else Response()

    pager.respond = respond
    script = NamespaceScript(names=TOPICS[:2])
    run = await stage.start(script, hooks=["gate"], waves={"canary": 1, "gate": "none", "deadline": "PT48H"})
    assert await asyncio.to_thread(asked.wait, 60)
    opens = await stage.env.get_current_time() + timedelta(hours=5)
    await run.update("set_change_windows", {"windows": {"not_before": opens.isoformat()}, "reason": "OPS-5"})
    answers.set()
    if overridden:
        await run.until(_is_vetoed)
        await stage.env.sleep(hooks.OVERRIDE_DELAY)
        await run.update("steer", VerbRequest(verb=Verb.PROCEED, reason="OPS-6"))
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert report.history[-1].started > opens
    assert pager.texts("cutover.asked")[-2:] == [
        "may the cut-over start?" if overridden else "may wave 1 start?",
        "may wave 1 start?",
    ]
