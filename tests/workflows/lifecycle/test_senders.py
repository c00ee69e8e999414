"""Senders of verbs: a note names the sender, and `audit` shows what Temporal's history has of it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, Interceptor, OutboundInterceptor, SignalWorkflowInput

from models.lifecycle.names import CALLER_HEADER
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import HoldChange, Verb, VerbRequest, WindowChange
from temporal.caller import act_for
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import IDENTITY, Harness, Run, on_dev_server
from tests.workflows.metadata_store.activities import Script
from views.acts import Act, read_acts
from workflows.lifecycle.caller import UNNAMED

USER = f"pulsar-migrate:{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts migrations on Temporal's dev server, with a client that sends no name."""
    async with on_dev_server(make_stack) as ready:
        yield ready


class _Forges(Interceptor):
    def __init__(self, header: bytes) -> None:
        self._header = header

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's own name
        return _Forged(next, self._header)


class _Forged(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, header: bytes) -> None:
        super().__init__(following)
        self._header = header

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        input.headers = {CALLER_HEADER: Payload(data=self._header)}
        await super().signal_workflow(input)


def _texts(notes: list[str]) -> list[str]:
    return [note.partition("Z ")[2] for note in notes]


async def _in_window(stage: Harness, **options: Any) -> Run:
    run = await stage.start(Script(), validation_window="PT24H", **options)
    await run.until(lambda status: "window" in status.deadlines)
    return run


def _handle(client: Client, run: Run) -> Any:
    return client.get_workflow_handle(run.handle.id)


async def test_verbs_name_their_sender(stage: Harness, command: Client) -> None:
    """The report has the sender of each verb and update, also of those that an earlier run of the workflow took."""
    run = await _in_window(stage, history_limit=15)
    handle = _handle(command, run)
    await handle.execute_update("change_window", WindowChange(remaining=timedelta(hours=5)))
    await run.signal(Verb.PAUSE, "OPS-1")
    await run.until(lambda status: any("pause refused" in note for note in status.notes))
    await handle.execute_update("steer", VerbRequest(verb=Verb.PROCEED, reason="OPS-2"))
    report = await run.report()
    assert report.outcome is Outcome.DONE
    texts = _texts(report.notes)
    assert any(text.endswith(f", changed by {USER}") for text in texts)
    assert any(text.startswith("pause refused: ") and text.endswith(f" (OPS-1); sent by {UNNAMED}") for text in texts)
    assert any(text.startswith(f"proceed (OPS-2) by {USER}: ") for text in texts)


async def test_audit(stage: Harness, command: Client) -> None:
    """`audit` lists the start, signals and accepted updates of all runs, with the client of each."""
    run = await _in_window(stage, history_limit=15)
    await run.signal(Verb.PAUSE, "OPS-1")
    await run.until(lambda status: any("pause refused" in note for note in status.notes))
    await run.refusal("hold_before_cutover", HoldChange(hold=True))
    await _handle(command, run).execute_update("steer", VerbRequest(verb=Verb.PROCEED, reason="OPS-2"))
    await run.report()

    def seen(act: Act) -> tuple[str, str, str, str, bool]:
        return (act.what, act.named_sender, act.client, act.principal, bool(act.refused))

    acts = await read_acts(command, run.handle.id)
    assert [seen(act) for act in acts] == [
        ("start", "", IDENTITY, "", False),
        ("signal pause", "", IDENTITY, "", False),
        ("update hold_before_cutover", "", IDENTITY, "", True),
        ("update steer", USER, USER, "", False),
    ]
    assert "OPS-1" in acts[1].arguments
    assert "OPS-2" in acts[3].arguments


async def test_a_sender_of_a_gateway(stage: Harness, command: Client) -> None:
    """A process that has authenticated a sender names that one; the history still names the client."""
    run = await _in_window(stage)
    with act_for("token:alice (gateway)"):
        await _handle(command, run).signal("proceed")
    assert any("proceed by token:alice (gateway): " in note for note in (await run.report()).notes)
    assert [(act.named_sender, act.client) for act in await read_acts(command, run.handle.id)][1:] == [
        ("token:alice (gateway)", USER)
    ]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b'"alice\\u001b[2J\\nbob"', r"alice\x1b[2J bob"),
        (b'"' + b"a" * 1_000_000 + b'"', UNNAMED),
        (b'"' + b"a" * 3_000 + b'"', "a" * 199 + "…"),
        (b"[" * 3_000, UNNAMED),
        (b"\xff\xfe", UNNAMED),
        (b'""', UNNAMED),
        (b"17", UNNAMED),
    ],
    ids=["escapes", "huge", "long", "deep", "no-text", "empty", "a-number"],
)
async def test_a_forged_header(stage: Harness, header: bytes, name: str) -> None:
    """Any text that a client sends as its name is shown as one short line, and stops no migration."""
    config = stage.client.config()
    config["interceptors"] = [_Forges(header)]
    run = await _in_window(stage)
    await _handle(Client(**config), run).signal("proceed")
    assert any(f"proceed by {name}: " in note for note in (await run.report()).notes)
