"""Hooks of a worker's settings: their rules, deliveries over TLS and to commands, and answers to the veto question."""

from __future__ import annotations

import gzip
import json
import socket
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.testing import ActivityEnvironment

from activities.hooks.activities import HookActivities
from activities.hooks.cloud_event import cloud_event
from models.hooks import Hook
from models.lifecycle.hook_events import (
    BATCH,
    MOST_EVENTS,
    Delivered,
    Delivery,
    EventSource,
    EventType,
    HookCheck,
    HookEvent,
    Outbox,
    Question,
    Veto,
    Vetoes,
)
from models.lifecycle.status import Outcome, Undo, Waiting, WaitKind
from models.settings import Settings
from process.exit_codes import CommandFailed
from process.settings import settings_of
from tests.support.hostile import HostileServer, received
from tests.support.lifecycle.hook_receiver import SECRET, HookReceiver, Response
from tests.support.self_signed import self_signed

AT = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)
SOURCE = EventSource(
    namespace="default",
    workflow_id="metadata-store/a.b",
    run_id="run-1",
    kind="metadata-store",
    cluster="a.b",
    target="oxia",
)
LONG_TIMEOUT = {"timeout": 60}
"""Settings of hooks that answer: also on a busy machine no limit is over before."""


def event(number: int, kind: EventType = EventType.PHASE_STARTED, **more: Any) -> HookEvent:
    """Return an event with a number."""
    fields: dict[str, Any] = {
        "id": f"run-1-{number}",
        "phase": "CATCH_UP",
        "text": f"event {number}",
        "undo": Undo.FREE,
        **more,
    }
    return HookEvent(number=number, type=kind, at=AT, **fields)


def delivery(*events: HookEvent) -> Delivery:
    """Return events for the hook `pager`."""
    return Delivery(hook="pager", source=SOURCE, events=events)


async def deliver(hook: dict[str, Any], *events: HookEvent) -> Delivered:
    """Deliver events to a hook with these settings."""
    return await ActivityEnvironment().run(_activities(hook).deliver, delivery(*events))


async def ask(**hooks: dict[str, Any]) -> Vetoes:
    """Ask hooks with a veto."""
    given = {name: Hook.model_validate({**LONG_TIMEOUT, "veto": True, **hook}) for name, hook in hooks.items()}
    question = Question(hooks=tuple(hooks), source=SOURCE, event=event(3, EventType.CUTOVER_ASKED))
    return await ActivityEnvironment().run(HookActivities(given).ask, question)


def _activities(hook: dict[str, Any]) -> HookActivities:
    return HookActivities({"pager": Hook.model_validate({**LONG_TIMEOUT, **hook})})


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[HookReceiver]:
    """A receiver with TLS."""
    with HookReceiver(tmp_path) as running:
        yield running


def test_an_event_is_a_cloud_event() -> None:
    """An event has all attributes that CloudEvents 1.0 requires, and what is not known is left out."""
    waiting = Waiting(kind=WaitKind.HOLD, why="`proceed`", since=AT, ends_on=("proceed",))
    assert cloud_event(SOURCE, event(7, EventType.WAIT_STARTED, waiting=waiting, legal_verbs=("proceed",))) == {
        "specversion": "1.0",
        "id": "run-1-7",
        "source": "/temporal/default/metadata-store/a.b",
        "type": "pulsar-migrate.wait.started",
        "time": "2026-11-29T10:00:00+00:00",
        "sequence": "0000000007",
        "subject": "CATCH_UP",
        "datacontenttype": "application/json",
        "data": {
            **SOURCE.model_dump(),
            "number": 7,
            "phase": "CATCH_UP",
            "text": "event 7",
            "undo": "free",
            "legal_verbs": ["proceed"],
            "waiting": {
                "kind": "hold",
                "why": "`proceed`",
                "action": "",
                "since": "2026-11-29T10:00:00Z",
                "ends_on": ["proceed"],
            },
            "request": "",
            "by": "",
            "reason": "",
        },
    }
    assert "subject" not in cloud_event(SOURCE, event(1, phase="", outcome=Outcome.DONE))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "needs either url or command"),
        ({"url": "https://h/x", "command": ["x"]}, "needs either url or command"),
        ({"url": "https://h/x"}, "set either secret or secret_file"),
        ({"url": "https://h/x", "secret": SECRET, "secret_file": "f"}, "set either secret or secret_file"),
        ({"url": "https://h/x", "secret": "whsec_c2hvcnQ="}, "secret number 1 has another form"),
        ({"url": "http://h/x", "secret": SECRET}, "allow_plain"),
        ({"url": "ftp://h/x", "secret": SECRET}, "invalid url"),
        ({"url": "https://[::1", "secret": SECRET}, "invalid url"),
        ({"url": "https://h", "secret": SECRET, "tls_key": "k"}, "tls_key needs tls_certificate"),
        ({"command": ["x"], "secret": SECRET}, "a command has no secret"),
        ({"command": ["x"], "timeout": "PT2M"}, "less than or equal to"),
        ({"command": ["x"], "events": ["phase.begun"]}, "Input should be"),
        ({"command": ["x"], "shell": True}, "Extra inputs"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], said: str) -> None:
    """A hook that could not work, or would be unsafe, is refused without its secret."""
    with pytest.raises(ValidationError, match=said) as refused:
        Hook.model_validate(fields)
    assert SECRET not in str(refused.value)


def test_settings_name_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the environment make named hooks, and their secrets are known as such."""
    monkeypatch.setenv("PULSAR_MIGRATE_HOOKS__PAGER__URL", "https://hooks.example/a?key=swordfish-1234")
    monkeypatch.setenv("PULSAR_MIGRATE_HOOKS__PAGER__SECRET", SECRET)
    monkeypatch.setenv("PULSAR_MIGRATE_HOOKS__PAGER__VETO", "true")
    monkeypatch.setenv("PULSAR_MIGRATE_HOOKS__CHAT__COMMAND", '["/opt/chat", "--pulsar"]')
    given = settings_of(Settings, "PULSAR_MIGRATE_")
    assert given.hooks["pager"].veto
    assert given.hooks["chat"].command == ("/opt/chat", "--pulsar")
    assert {SECRET, "swordfish-1234"} <= set(given.secrets)
    assert not [secret for secret in (SECRET, "swordfish") if secret in f"{given!r}{given.hooks!r}"]
    monkeypatch.setenv("PULSAR_MIGRATE_HOOKS__PAGER__TSL_CA", "/ca.pem")
    with pytest.raises(CommandFailed, match="PULSAR_MIGRATE_HOOKS__PAGER__TSL_CA"):
        settings_of(Settings, "PULSAR_MIGRATE_")


async def test_events_are_signed_and_in_order(receiver: HookReceiver) -> None:
    """Events arrive signed and in their order; a hook gets only the types that it wants."""
    kinds = {"events": ["phase.started"]}
    answer = await deliver(receiver.settings(**kinds), event(1), event(2, EventType.ALARM_RAISED), event(3))
    assert answer == Delivered(taken=3)
    assert [received["id"] for received in receiver.events] == ["run-1-1", "run-1-3"]
    assert receiver.faults == []


async def test_a_refused_event_is_the_next_one_again(receiver: HookReceiver) -> None:
    """A hook that refuses an event does not get those after it before it takes this one."""
    receiver.respond = lambda received: Response(503 if received["id"] == "run-1-2" else 200)
    answer = await deliver(receiver.settings(), event(1), event(2), event(3))
    assert answer == Delivered(taken=1, error="answered 503")
    assert [received["id"] for received in receiver.events] == ["run-1-1", "run-1-2"]


async def test_redirects_are_not_followed(receiver: HookReceiver) -> None:
    """A redirect counts as a failure: it could lead to any address."""
    receiver.respond = lambda _: Response(307, headers={"Location": f"{receiver.url}/elsewhere"})
    answer = await deliver(receiver.settings(), event(1))
    assert answer.error == "answered 307, and redirects are not followed"
    assert len(receiver.events) == 1


async def test_a_slow_hook_has_a_limit(receiver: HookReceiver) -> None:
    """The time limit is for the whole answer."""
    receiver.respond = lambda _: Response(delay=1.0)
    answer = await deliver(receiver.settings(timeout=0.2), event(1))
    assert answer.error == "did not answer within 0.2 s"


async def test_certificates_are_checked_on_both_sides(tmp_path: Path) -> None:
    """An endpoint whose certificate is not trusted gets nothing, and one that asks for a certificate gets ours."""
    ours = self_signed(tmp_path, "worker")
    with HookReceiver(tmp_path, ours) as receiver:
        own = {"tls_certificate": str(ours.certificate), "tls_key": str(ours.key)}
        untrusted = await deliver(receiver.settings(tls_ca="", **own), event(1))
        anonymous = await deliver(receiver.settings(), event(1))
        assert untrusted.error.startswith("the certificate was not accepted (self-signed certificate")
        # The refusal comes after the handshake, and is sometimes lost with the connection.
        refused = "the certificate was not accepted (TLSV13_ALERT_CERTIFICATE_REQUIRED"
        assert anonymous.error.startswith((refused, "cannot be reached; the worker's log says why"))
        assert receiver.events == []
        assert await deliver(receiver.settings(**own), event(1)) == Delivered(taken=1)
    gone = await deliver(receiver.settings(**own), event(1))
    assert gone.error == "cannot be reached; the worker's log says why"
    missing = await deliver(receiver.settings(tls_ca="/no/such/file"), event(1))
    assert "the files of its TLS settings cannot be used" in missing.error


async def test_a_command_gets_the_event_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command reads the event from its standard input, and its environment has no setting of ours."""
    monkeypatch.setenv("PULSAR_MIGRATE_ADMIN_TOKEN", "swordfish")
    command = ["sh", "-c", f"cat > {tmp_path}/event; env > {tmp_path}/environment"]
    assert await deliver({"command": command}, event(4)) == Delivered(taken=4)
    assert json.loads((tmp_path / "event").read_text()) == cloud_event(SOURCE, event(4))
    assert "swordfish" not in (tmp_path / "environment").read_text()


async def test_failing_commands() -> None:
    """A command that fails, is missing or takes too long has not taken the event; its output stays in the log."""
    failed = await deliver({"command": ["sh", "-c", "echo swordfish; exit 3"]}, event(1))
    assert failed.error == "ended with 3; the worker's log has what it printed"
    absent = await deliver({"command": ["/no/such/program"]}, event(1))
    assert absent.error.startswith("ended with 127")
    begun = time.monotonic()
    late = await deliver({"command": ["sleep", "600"], "timeout": 0.3}, event(1))
    assert late.error == "took longer than 0.3 s and was ended"
    assert time.monotonic() - begun < 60


async def test_unknown_hooks_are_refused_with_their_cure() -> None:
    """A name that the settings lack is refused, and the message says what to set."""
    activities = _activities({"command": ["true"]})
    checked = await ActivityEnvironment().run(activities.check, HookCheck(hooks=("pager", "chat")))
    (problem,) = checked.problems
    assert problem == (
        "the worker's settings have no hook called 'chat'; they have pager. Cure: set "
        "PULSAR_MIGRATE_HOOKS__CHAT__URL or __COMMAND, and restart the worker, or correct `hooks`"
    )
    answer = await ActivityEnvironment().run(activities.deliver, Delivery(hook="chat", source=SOURCE, events=()))
    assert "no hook called 'chat'" in answer.error


async def test_who_may_refuse_a_cutover(receiver: HookReceiver) -> None:
    """Only hooks with a veto are asked; each may refuse, and one that does not answer refuses too."""
    other = receiver.settings(veto=False)
    assert await ask(pager=receiver.settings(), chat=other) == Vetoes(asked=("pager",))
    assert [received["type"] for received in receiver.events] == ["pulsar-migrate.cutover.asked"]
    receiver.respond = lambda _: Response(409, '{"reason": "freeze until Monday"}', {"Retry-After": "120"})
    command = {"command": ["sh", "-c", "echo the backup runs; exit 1"]}
    answer = await ask(pager=receiver.settings(), backup=command, gone={"command": ["/no/such/program"]})
    assert answer.vetoes == (
        Veto(hook="pager", why="freeze until Monday", ask_again=120),
        Veto(hook="backup", why="the backup runs"),
        Veto(hook="gone", why="ended with 127; the worker's log has what it printed"),
    )
    together = answer.together
    assert together is not None
    assert (together.hook, together.ask_again) == ("pager, backup, gone", 120)


@pytest.mark.parametrize(
    ("response", "why", "ask_again"),
    [
        (Response(403, "not today"), "not today", 60),
        (Response(403), "answered 403", 60),
        (Response(500, "secret trace", {"Retry-After": "0"}), "answered 500", 5),
        (Response(409, "x", {"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT"}), "x", 3600),
        (Response(409, "x", {"Retry-After": "soon"}), "x", 60),
        (Response(409, "x", {"Retry-After": "1 Jan 99999999999 00:00:00"}), "x", 60),
        (Response(409, "x", {"Content-Encoding": "gzip"}), "answered 409", 60),
        (Response(302), "answered 302, and redirects are not followed", 60),
        (Response(delay=0.6), "did not answer within 0.3 s", 60),
    ],
)
async def test_answers_that_refuse(receiver: HookReceiver, response: Response, why: str, ask_again: float) -> None:
    """Any answer but success refuses; the reason of 403 and 409 is shown, and `Retry-After` has bounds."""
    receiver.respond = lambda _: response
    # A busy machine is slow too.
    answer = await ask(pager=receiver.settings(timeout=0.3 if response.delay else 60))
    assert answer.vetoes == (Veto(hook="pager", why=why, ask_again=ask_again),)


async def test_an_answer_is_not_unpacked() -> None:
    """Zeros that were packed twice take no memory: the endpoint takes the event, and nothing is unpacked."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    zeros = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(200)), packer.flush()])
    body = gzip.compress(zeros)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip, gzip\r\ncontent-length: %d\r\n\r\n" % len(body)

    def script(connected: socket.socket) -> None:
        received(connected)
        connected.sendall(head + body)
        received(connected)

    with HostileServer(script) as server:
        settings = {"url": server.url, "secret": SECRET, "allow_plain": True}
        tracemalloc.start()
        assert await deliver(settings, event(1)) == Delivered(taken=1)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 20 << 20


async def test_a_secret_file_is_read_for_each_request(receiver: HookReceiver, tmp_path: Path) -> None:
    """A missing file is a failure that the message explains; the next delivery reads it again."""
    file = tmp_path / "secret"
    settings = receiver.settings(secret_file=str(file)) | {"secret": ""}
    answer = await deliver(settings, event(1))
    assert answer.error.startswith("PULSAR_MIGRATE_HOOKS__PAGER__SECRET_FILE: ")
    file.write_text(SECRET)
    assert await deliver(settings, event(1)) == Delivered(taken=1)
    assert receiver.faults == []


def test_the_outbox_is_bounded() -> None:
    """Events wait for each hook on its own; when too many wait, the first ones are lost and counted."""
    outbox = Outbox()
    outbox.register(("fast", "slow"))
    for number in range(1, MOST_EVENTS + 6):
        outbox.add(event(number))
        outbox.delivered("fast", Delivered(taken=number), AT)
    slow, fast = outbox.hooks["slow"], outbox.hooks["fast"]
    assert (fast.pending, fast.lost, slow.pending, slow.lost) == (0, 0, MOST_EVENTS, 5)
    assert outbox.next_for("slow")[0].number == 6
    assert len(outbox.next_for("slow")) == BATCH
    outbox.delivered("slow", Delivered(taken=0, error="answered 503"), AT)
    # Each attempt stays in the history.
    assert len(outbox.next_for("slow")) == 1
    assert (outbox.hooks["slow"].failing_since, outbox.hooks["slow"].error) == (AT, "answered 503")
    outbox.delivered("slow", Delivered(taken=MOST_EVENTS + 5), AT)
    assert (outbox.events, outbox.hooks["slow"].failing_since, outbox.hooks["slow"].pending) == ([], None, 0)
