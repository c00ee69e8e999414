"""Two persons: one asks for a step that costs a copy back or cannot be undone, and another one approves it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from cli.commands.steering import bound_approval
from models.lifecycle.audit import fault_of
from models.lifecycle.names import file_name
from models.lifecycle.preview import VerbPreview
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Status, Undo, WaitKind
from models.lifecycle.units import format_value
from models.lifecycle.verbs import HoldChange, Verb, VerbRequest
from temporal.caller import act_for
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import Harness, Run, on_dev_server
from tests.workflows.lifecycle.persons import ANA, BO, Persons
from tests.workflows.metadata_store.activities import Script
from views.acts import read_acts
from views.evidence import SUMS, Evidence, keep_evidence
from workflows.lifecycle.caller import UNNAMED

_LISTED_WITHIN = 60.0
"""Seconds after which Temporal lists a run that has ended; most often it does at once."""


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts migrations on Temporal's dev server, with a client that sends no name."""
    async with on_dev_server(make_stack) as ready:
        yield ready


async def _held(stage: Harness, **more: Any) -> Run:
    run = await stage.start(Script(), hold_before_cutover=True, validation_window="PT0S", **more)
    await run.until(_is_held)
    return run


def _is_held(status: Status) -> bool:
    return status.waiting is not None and status.waiting.kind is WaitKind.HOLD


async def test_another_person_approves(stage: Harness, command: Client) -> None:
    """Neither the person who asked nor a sender without a name approves; another person does, and all is recorded."""
    run = await _held(stage, two_persons=True)
    persons = Persons(command, run)
    assert "the sender has no name" in (await run.refusal("steer", VerbRequest(verb=Verb.PROCEED))).message
    asked = await persons.steer(ANA, Verb.PROCEED, "OPS-1")
    assert asked.why == "asks another person to `approve` it; then: the cut-over begins"
    status = await run.status()
    assert status.request is not None
    assert (status.request.by, status.request.verb, status.request.reason) == (ANA, Verb.PROCEED, "OPS-1")
    assert _is_held(status)
    again = VerbRequest(verb=Verb.APPROVE)
    for who in (ANA, "pulsar-migrate:ana@three"):
        assert "another person must approve it" in await persons.refusal(who, "steer", again)
    await run.signal(Verb.APPROVE)
    assert "has asked for it already" in await persons.refusal(BO, "steer", VerbRequest(verb=Verb.PROCEED))
    assert "two persons must agree" in await persons.refusal(BO, "hold_before_cutover", HoldChange(hold=False))
    assert _is_held(await run.status())
    approval = await bound_approval(command, run.handle.id, VerbRequest(verb=Verb.APPROVE, reason="looked at it"))
    assert approval.asked == status.request.since
    assert (await persons.send(BO, approval)).accepted
    report = await run.report()
    assert report.outcome is Outcome.DONE
    _check_trail(report)


def _check_trail(report: Report) -> None:
    seen = [(entry.by, entry.what, entry.accepted) for entry in report.audit]
    assert seen == [
        (UNNAMED, "steer", False),
        (ANA, "proceed", True),
        (ANA, "steer", False),
        ("pulsar-migrate:ana@three", "steer", False),
        (UNNAMED, "approve", False),
        (BO, "steer", False),
        (BO, "hold_before_cutover", False),
        (BO, "approve", True),
    ]
    assert not fault_of(report.audit)
    changed = [entry.model_copy(update={"by": BO}) if entry.number == 2 else entry for entry in report.audit]
    assert fault_of(changed) == "entry 2 was changed: its hash does not fit"
    assert fault_of([*report.audit[:2], *report.audit[3:]]) == "the entry before number 4 is missing, or was changed"


async def test_an_approval_names_the_request_that_was_read(stage: Harness, command: Client) -> None:
    """A request that replaced the one of that time is not approved, also where a dry run asks first."""
    run = await _held(stage, two_persons=True)
    persons = Persons(command, run)
    await persons.steer(ANA, Verb.PROCEED, "OPS-1")
    status = await run.status()
    assert status.request is not None
    shown = format_value(status.request.since)

    async def bound(asked: object) -> VerbRequest:
        typed = VerbRequest.model_validate({"verb": Verb.APPROVE, "asked": asked})
        return await bound_approval(command, run.handle.id, typed)

    stale = await bound(status.request.since - timedelta(minutes=1))
    refused = await run.handle.query("preview", stale, result_type=VerbPreview)
    assert (refused.accepted, refused.effect.partition(":")[0]) == (False, "the request has changed")
    assert "the request has changed" in await persons.refusal(BO, "steer", stale)
    read = await bound(shown)
    assert read.asked == status.request.since
    assert (await run.handle.query("preview", read, result_type=VerbPreview)).accepted
    assert (await persons.send(BO, read)).accepted
    assert (await run.report()).outcome is Outcome.DONE


async def test_evidence(stage: Harness, command: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration and its earlier runs are written once; the sums fit, and a changed byte is noticed.

    A run that Temporal has forgotten before the end is in a folder of its own, and all later ones are found.
    """
    run = await _held(stage, history_limit=30)
    persons = Persons(command, run)
    while await run.runs() < 3:
        await persons.refusal(BO, "steer", VerbRequest(verb=Verb.RESUME))
    await run.until(_is_held)
    earlier: list[Evidence] = []
    async with asyncio.timeout(_LISTED_WITHIN):
        while len(earlier) < 2:
            earlier += await keep_evidence(command, tmp_path, run.handle.id)
    assert [{path.name.partition("-")[0] for path in each.folder.iterdir()} for each in earlier] == len(earlier) * [
        {"SHA256SUMS", "requests.json", "history"}
    ]
    first = run.handle.first_execution_run_id or ""
    _forget(monkeypatch, first)
    await persons.steer(ANA, Verb.PROCEED, "OPS-1")
    await run.report()
    stranger = tmp_path / file_name(run.handle.id) / (await run.handle.describe()).run_id
    stranger.mkdir()
    (stranger / "notes").touch()
    refused: list[Evidence] = []
    async with asyncio.timeout(_LISTED_WITHIN):
        while not refused:
            written = await keep_evidence(command, tmp_path, run.handle.id)
            refused = [each for each in written if each.folder == stranger]
    assert refused[0].fault.startswith("it was not kept: [Errno 39] Directory not empty")
    (stranger / "notes").unlink()
    [evidence] = await keep_evidence(command, tmp_path, run.handle.id)
    assert (evidence.fault, evidence.forgotten, evidence.folder) == ("", first, stranger)
    assert evidence.sha256 == hashlib.sha256((evidence.folder / SUMS).read_bytes()).hexdigest()
    assert {path.name.partition("-")[0] for path in evidence.folder.iterdir()} == {
        "SHA256SUMS",
        "view.json",
        "requests.json",
        "history",
    }
    # Runs 2 and 3, and those that came after them.
    assert len(list(evidence.folder.glob("history-*.json"))) >= 2
    assert first in [each.run_id for each in earlier]
    assert _sums_fit(evidence.folder)
    requests = json.loads((evidence.folder / "requests.json").read_text())
    assert ("update steer", ANA, "") in [(act["what"], act["named_sender"], act["refused"]) for act in requests]
    assert "OPS-1" in (evidence.folder / "view.json").read_text()
    assert await keep_evidence(command, tmp_path, run.handle.id) == []
    (evidence.folder / "view.json").write_text("{}")
    assert not _sums_fit(evidence.folder)


def _forget(monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    """Answer for a run as Temporal does after the retention; its own deletion takes half a minute."""
    of_temporal: Any = WorkflowHandle
    read = of_temporal.fetch_history

    async def fetch_history(handle: Any, **options: Any) -> Any:
        if handle.run_id == run_id:
            raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        return await read(handle, **options)

    monkeypatch.setattr(WorkflowHandle, "fetch_history", fetch_history)


def _sums_fit(folder: Path) -> bool:
    check = ("sha256sum", "--check", "--strict", SUMS)
    return subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 0


async def test_a_request_is_dropped(stage: Harness, command: Client) -> None:
    """`reject` drops a request, and so does a rollback, which needs one person only.

    An approval of a request that was dropped does not approve the next one.
    """
    run = await _held(stage, two_persons=True)
    persons = Persons(command, run)
    assert "no request" in await persons.refusal(BO, "steer", VerbRequest(verb=Verb.REJECT))
    await persons.steer(ANA, Verb.PROCEED)
    await persons.steer(BO, Verb.REJECT, "not tonight")
    assert (await run.status()).request is None
    assert "no request" in await persons.refusal(BO, "steer", VerbRequest(verb=Verb.APPROVE))
    await persons.steer(ANA, Verb.PROCEED)
    read = (await run.status()).request
    assert read is not None
    await persons.steer(ANA, Verb.REJECT)
    await persons.steer(ANA, Verb.PROCEED)
    other = VerbRequest(verb=Verb.APPROVE, asked=read.since)
    assert "the request has changed" in (await persons.refusal(BO, "steer", other))
    assert _is_held(await run.status())
    await persons.steer(ANA, Verb.ROLLBACK)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_a_request_outlives_a_run(stage: Harness, command: Client) -> None:
    """A migration that continues as a new run keeps the request, and who started it."""
    with act_for(ANA):
        run = await stage.start(Script(), two_persons=True, hold_before_cutover=True, history_limit=30)
    await run.until(_is_held)
    persons = Persons(command, run)
    await persons.steer(ANA, Verb.PROCEED)
    first = (await run.status()).request
    while await run.runs() < 2:
        # Refusals make the history longer.
        await persons.refusal(BO, "steer", VerbRequest(verb=Verb.RESUME))
    later = await run.until(_is_held)
    assert later.request == first
    assert (await persons.audit()).entries[0].what == "proceed"
    await persons.steer(BO, Verb.APPROVE)
    await run.until(lambda status: "window" in status.deadlines)


async def test_previews_do_nothing(stage: Harness, command: Client) -> None:
    """The dry run of a verb tells effect, cost and what it ends, and adds nothing to the history."""
    run = await _held(stage, two_persons=True)
    persons = Persons(command, run)
    proceed, rollback, resume = [await persons.preview(verb) for verb in (Verb.PROCEED, Verb.ROLLBACK, Verb.RESUME)]
    assert (proceed.accepted, proceed.two_persons, proceed.undo) == (True, True, Undo.COPY_BACK)
    assert proceed.effect == "the cut-over begins"
    assert any(text.startswith("the wait for the operator's `proceed`") for text in proceed.ends)
    assert (rollback.accepted, rollback.two_persons) == (True, False)
    assert rollback.undo_cost == "brokers are not affected; a rollback removes the copy from the target"
    assert rollback.ends[0] == "phase CATCH_UP"
    assert (resume.accepted, resume.effect, resume.ends) == (False, "it is not paused", ())
    assert [act.what for act in await read_acts(command, run.handle.id)] == ["start"]
    await persons.steer(ANA, Verb.ROLLBACK)
    await run.report()


async def test_one_person_is_enough_without_the_rule(stage: Harness, command: Client) -> None:
    """Without `two_persons` one person decides; a cleanup that deletes nothing needs one only, with it too."""
    run = await _held(stage)
    await Persons(command, run).steer(ANA, Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
