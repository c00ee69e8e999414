"""A cut-over waits for its change window, also after `proceed`; its history replays with other rules of time zones."""

from __future__ import annotations

import gc
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from models.lifecycle import change_windows
from models.lifecycle.change_windows import ALWAYS, ChangeWindows, WindowsReading
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, Status, WaitKind
from models.lifecycle.time_zones import zone_of
from models.lifecycle.verbs import ChangeWindowsChange, CutoverTime, Verb, VerbRequest
from models.metadata_store.phases import Phase
from temporal.converter import DATA_CONVERTER
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.lifecycle.persons import ANA, BO, Persons
from tests.workflows.lifecycle.workers import RUNNER
from tests.workflows.metadata_store.activities import HELD, Script, between_rounds
from workflows.metadata_store.workflow import MetadataStoreMigration

# Its clocks never change: the server's time is any day of any year.
ZONE = "Asia/Kolkata"
HOUR = timedelta(hours=1)
NEEDED = timedelta(minutes=5)
"""Default of `blocked_deadline`."""


def _daily(start: datetime) -> dict[str, Any]:
    """Return windows of an hour that open each day at a time."""
    local = start.astimezone(zone_of(ZONE))
    return {"zone": ZONE, "open": [f"{local.minute} {local.hour} * * *"], "duration": "1h"}


async def test_cutover_waits_for_its_window_after_proceed(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `proceed` the cut-over begins when the next window opens, and the history replays with another zone."""
    now = await stage.env.get_current_time()
    windows = _daily(now - HOUR / 2)
    run = await stage.start(Script(), hold_before_cutover=True, validation_window="PT0S", change_windows=windows)
    await _between_rounds(run, WaitKind.HOLD)
    # The window that was open at the start has ended.
    await stage.env.sleep(HOUR)
    await _between_rounds(run, WaitKind.HOLD)
    preview = await run.handle.query("preview", VerbRequest(verb=Verb.PROCEED))
    await run.signal(Verb.PROCEED)
    status = await _between_rounds(run, WaitKind.CHANGE_WINDOW)
    assert status.waiting is not None
    opens = status.waiting.until
    assert opens is not None
    assert timedelta(hours=22) < opens - now < timedelta(hours=24)
    assert status.waiting.why == (
        "outside of the change windows; the next one opens "
        f"{opens.astimezone(zone_of(ZONE)):%a %Y-%m-%d %H:%M} {ZONE} ({opens.astimezone(zone_of(ZONE)):%Z}), "
        f"that is {opens:%Y-%m-%dT%H:%M}Z, for 1 h"
    )
    assert status.waiting.ends_on == ("set_change_windows", Verb.ROLLBACK)
    assert Verb.PROCEED not in status.legal_verbs
    again = await run.refusal("steer", VerbRequest(verb=Verb.PROCEED))
    assert again.message.startswith(f"proceed refused: {status.waiting.why}. Legal now: rollback, pause")
    assert preview["openings"][0]["opens"] == f"{opens:%Y-%m-%dT%H:%M:%SZ}"
    assert len(preview["openings"]) == 3
    report = await run.report()
    assert (report.outcome, run.script.stages) == (Outcome.DONE, HELD)
    assert opens <= _began(report.history) < opens + HOUR - NEEDED
    assert sum(note.partition("Z ")[2].startswith("change window: ") for note in report.notes) == 3

    # As if the zone had got other laws, or the package with them an update.
    def other_zone(_: str) -> ZoneInfo:
        return zone_of("Asia/Tokyo")

    monkeypatch.setattr(change_windows, "zone_of", other_zone)
    other = WindowsReading.of(ChangeWindows.model_validate(windows), opens, NEEDED)
    assert other.openings[0].opens != opens
    replayer = Replayer(workflows=[MetadataStoreMigration], workflow_runner=RUNNER, data_converter=DATA_CONVERTER)
    await replayer.replay_workflow(await run.handle.fetch_history())
    # As in `workers`: what is left of the replayed run must not end during a run of another worker.
    gc.collect()


async def test_a_window_that_is_too_short_is_left_out(stage: Harness) -> None:
    """A cut-over that may take longer than is left of the window waits for the next one."""
    now = await stage.env.get_current_time()
    windows = _daily(now - HOUR + NEEDED)
    run = await stage.start(Script(), validation_window="PT0S", change_windows=windows)
    status = await _between_rounds(run, WaitKind.CHANGE_WINDOW)
    assert status.waiting is not None
    assert status.waiting.until is not None
    assert status.waiting.until > now + timedelta(hours=22)
    assert (await run.report()).outcome is Outcome.DONE


async def test_windows_that_have_ended_ask_for_others(stage: Harness) -> None:
    """A cut-over whose last window has passed waits for an operator, and its status says so."""
    now = await stage.env.get_current_time()
    windows = {"not_after": f"{now + HOUR:%Y-%m-%dT%H:%M:%SZ}"}
    run = await stage.start(Script(), hold_before_cutover=True, validation_window="PT0S", change_windows=windows)
    await _between_rounds(run, WaitKind.HOLD)
    late = await run.refusal("cutover_at", CutoverTime(at=now + 2 * HOUR))
    assert "the change windows end at" in late.message
    await run.update("cutover_at", CutoverTime(at=now + HOUR / 2))
    earlier = ChangeWindowsChange(windows=ChangeWindows(not_after=now + HOUR / 4), reason="a mistake")
    assert "the cut-over may not begin before" in (await run.refusal("set_change_windows", earlier)).message
    await run.update("cutover_at", CutoverTime(at=None))
    await stage.env.sleep(HOUR)
    await _between_rounds(run, WaitKind.HOLD)
    await run.signal(Verb.PROCEED)
    waiting = (await _between_rounds(run, WaitKind.CHANGE_WINDOW)).waiting
    assert waiting is not None
    assert (waiting.until, waiting.needs_operator) == (None, True)
    assert waiting.why == "outside of the change windows, which do not open within a year"
    assert waiting.action == "set other change windows, or roll back"
    await run.update("set_change_windows", ChangeWindowsChange(windows=ALWAYS, reason="OPS-9"))
    assert (await run.report()).outcome is Outcome.DONE


async def test_change_windows_are_replaced_with_a_reason(stage: Harness) -> None:
    """An operator replaces the windows, or drops them, only with a reason, which the audit trail keeps."""
    now = await stage.env.get_current_time()
    black = {"start": f"{now - timedelta(days=2):%Y-%m-%d}", "end": f"{now + timedelta(days=9):%Y-%m-%d}"}
    windows = {**_daily(now), "blackouts": [{**black, "reason": "end of the quarter"}]}
    run = await stage.start(Script(), validation_window="PT0S", change_windows=windows)
    status = await _between_rounds(run, WaitKind.CHANGE_WINDOW)
    assert status.waiting is not None
    assert "outside of the change windows (blackout: end of the quarter)" in status.waiting.why
    refusal = await run.refusal("set_change_windows", {"windows": {}, "reason": ""})
    assert "at least 1 character" in refusal.message
    passed = ChangeWindowsChange(windows=ChangeWindows(not_after=now), reason="a mistake")
    assert "do not open for 10 min within a year" in (await run.refusal("set_change_windows", passed)).message
    await run.update("set_change_windows", ChangeWindowsChange(windows=ALWAYS, reason="OPS-7: the store is full"))
    report = await run.report()
    assert (report.outcome, run.script.stages) == (Outcome.DONE, HELD)
    assert _began(report.history) < now + HOUR
    accepted = [entry for entry in report.audit if entry.accepted]
    assert [(entry.what, entry.reason) for entry in accepted] == [("set_change_windows", "OPS-7: the store is full")]
    assert any("change windows: at any time (OPS-7: the store is full)" in note for note in report.notes)


async def test_two_persons_widen_windows(stage: Harness, command: Client) -> None:
    """With `two_persons` windows that allow more are used when another person sends the same; one person may narrow."""
    now = await stage.env.get_current_time()
    windows = ChangeWindows.model_validate(_daily(now - 2 * HOUR))
    run = await stage.start(
        Script(), hold_before_cutover=True, two_persons=True, validation_window="PT0S", change_windows=windows
    )
    persons = Persons(command, run)
    await _between_rounds(run, WaitKind.HOLD)
    await persons.steer(ANA, Verb.PROCEED)
    await persons.steer(BO, Verb.APPROVE)
    await _between_rounds(run, WaitKind.CHANGE_WINDOW)
    narrower = windows.model_copy(update={"not_before": now + HOUR})
    assert (await persons.set_windows(ANA, narrower)).approved
    for wider in (windows, ALWAYS):
        change = ChangeWindowsChange(windows=wider, reason="OPS-7")
        assert "the sender has no name" in (await run.refusal("set_change_windows", change)).message
        assert not (await persons.set_windows(ANA, wider)).approved
        assert "another person must send the same" in await persons.refusal(ANA, "set_change_windows", change)
    # What she asked for last counts, and not what she asked for before.
    assert not (await persons.set_windows(BO, windows)).approved
    assert not (await persons.set_windows(BO, ALWAYS)).approved
    await _between_rounds(run, WaitKind.CHANGE_WINDOW)
    assert (await persons.set_windows(ANA, ALWAYS)).approved
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert _began(report.history) < now + HOUR
    asked = [entry.by for entry in report.audit if entry.result.startswith("asks another person to send the same")]
    assert asked == [ANA, ANA, BO, BO]


async def test_windows_that_never_open_end_the_start(stage: Harness) -> None:
    """A migration whose windows do not open within a year ends before its first step."""
    over: dict[str, Any] = {
        "change_windows": {"not_after": "2999-01-01T00:00:00Z"},
        "cutover_at": "2999-01-02T00:00:00Z",
    }
    refused = await (await stage.start(Script(), **over)).typed_failure()
    assert (refused.type, "the change windows end at" in refused.message) == (FailureKind.INVALID_INPUT, True)
    year = {"start": "1990-01-01", "end": "2999-12-31"}
    run = await stage.start(Script(), change_windows={"blackouts": [year]})
    failure = await run.typed_failure()
    assert failure.type == FailureKind.INVALID_INPUT
    assert "the change windows do not open for 10 min within a year" in failure.message
    assert not run.script.steps


def _began(history: list[Any]) -> datetime:
    return next(entry for entry in history if entry.phase == Phase.PREPARATION).started


async def _between_rounds(run: Run, kind: WaitKind) -> Status:
    idle = between_rounds(run.script)
    return await run.until(lambda status: status.waiting is not None and status.waiting.kind is kind and idle(status))
