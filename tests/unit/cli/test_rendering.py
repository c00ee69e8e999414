"""The view of a migration: the order of its lines, and readable numbers."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from rich.console import Console

from cli.rendering import NOTES, ago, ending, headline, lines, screen
from cli.tables import print_table
from models.lifecycle.change_windows import Opening
from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.report import Report
from models.lifecycle.status import (
    CutoverPlan,
    HookStatus,
    Outcome,
    PhaseEntry,
    Progress,
    ProgressTask,
    ProgressUnit,
    Status,
    Undo,
    Waiting,
    WaitKind,
)
from models.lifecycle.verbs import Verb
from views.migration import Failure, Step, View
from views.values import described
from worker.catalog import KINDS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BROKERS_STOP = Waiting(
    kind=WaitKind.BROKERS_STOP,
    why="broker b-1 to stop",
    action="stop all brokers",
    since=NOW - timedelta(minutes=12, seconds=30),
    ends_on=("rollback",),
)
PROGRESS = Progress(
    task=ProgressTask.COPY,
    unit=ProgressUnit.LEDGERS,
    done=1_200,
    total=40_000,
    rate=81.3,
    eta_seconds=477.2,
    basis="average rate of this step",
    as_of=NOW,
)
FIGURES: dict[str, Any] = {
    "build": {
        "copied_ledgers": 957_073,
        "equal_ledgers": 0,
        "copied_entries": 1,
        "copied_bytes": 1_234_567_890,
        "compared_entries": 0,
        "recovered_ledgers": 0,
        "seconds": 61.2,
    },
    "brokers_away_seconds": 1.94,
    "new_ledgers": 0,
}

BUILD = (
    "build: copied 957,073 ledgers, equal 0 ledgers, copied 1 entry, copied 1.2 GB, compared 0 entries, "
    "recovered 0 ledgers, 1 min 1 s"
)


class Stopped(datetime):
    """A clock that does not move."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        """Return always the same time."""
        return NOW


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages and remaining times do not depend on how fast the tests run."""
    monkeypatch.setattr("cli.rendering.datetime", Stopped)


def status(**changes: Any) -> Status:
    """Return the status of a switch that waits for its brokers."""
    history = [PhaseEntry(phase="SWITCH", started=NOW - timedelta(seconds=5), undo=Undo.METADATA)]
    given: dict[str, Any] = {
        "kind": "bookie-cluster",
        "cluster": "prod",
        "target": "b",
        "phase": "SWITCH",
        "outcome": Outcome.RUNNING,
        "history": history,
        "progress": None,
        "waiting": BROKERS_STOP,
        "paused": False,
        "undo": Undo.METADATA,
        "undo_cost": "brokers start on the source again",
        "legal_verbs": [Verb.ROLLBACK],
        "failed_items": [],
        "deadlines": {},
        "notes": [],
        "facts": {},
        "figures": {},
    }
    return Status.model_validate({**given, **changes})


def view(**changes: Any) -> View:
    """Return a view of the switch."""
    given: dict[str, Any] = {
        "workflow_id": "bookie-cluster/prod",
        "run_id": "run-1",
        "execution": "RUNNING",
        "started": NOW,
        "closed": None,
        "phase": "SWITCH",
        "status": status(),
        "silence": "",
        "steps": [],
        "report": None,
        "failure": None,
    }
    return View(**{**given, **changes})


def test_each_batch_has_a_line() -> None:
    """Running batches are below the steps, with their phases and what they wait for; many are partly counted."""
    batch = view(workflow_id="bookie-cluster/prod/a", status=status(phase="DRAIN"))
    whole = view(children=[batch], children_count=3)
    running = "running | DRAIN | do now: stop all brokers | waits for broker b-1 to stop"
    assert [line for line in lines(whole) if line.startswith("batch")] == [
        f"batch      bookie-cluster/prod/a | {running}",
        "batch      and 2 more",
    ]
    assert headline(whole).endswith(headline(batch))


def test_failing_hooks_have_a_line() -> None:
    """A hook that does not take events is shown with the cause; one that works is not."""
    failing = HookStatus(name="chat", pending=3, lost=1, failing_since=NOW - timedelta(minutes=2), error="answered 503")
    shown = lines(view(status=status(hooks=[HookStatus(name="pager"), failing])))
    (hook,) = (line for line in shown if line.startswith("hook"))
    assert hook.startswith("hook       chat: 3 events are not delivered, 1 lost, failing since ")
    assert hook.endswith(" ago): answered 503")


def test_actions_come_first() -> None:
    """Below the headline are dangers, then what the operator is asked to do, then what is waited for, and why."""
    shown = lines(view(status=status(alarms=["ids may collide"])))
    assert shown[0] == "bookie-cluster/prod → b | RUNNING | SWITCH"
    assert shown[1] == "ALARM      ids may collide"
    assert shown[2] == "do now     stop all brokers"
    assert shown[3].startswith("waits for  broker b-1 to stop, since ")
    assert shown[3].endswith("Z (12 min 30 s ago); ends on: rollback")
    assert shown[4].startswith("phase      SWITCH          running            5.0 s")
    assert shown[-2:] == ["undo       metadata: brokers start on the source again", "verbs now  rollback"]
    assert "do now: stop all brokers | waits for broker b-1 to stop" in headline(view())
    paused = view(status=status(paused=True, waiting=None))
    assert lines(paused)[1] == "do now     give `resume` to continue"
    assert "| do now: give `resume` to continue" in headline(paused)


def test_progress_has_its_age() -> None:
    """Progress is shown with its rate, its estimate and its age."""
    aged = PROGRESS.model_copy(update={"as_of": NOW - timedelta(seconds=75)})
    (line,) = [line for line in lines(view(status=status(waiting=None, progress=aged))) if line.startswith("progress")]
    assert line == (
        "progress   1,200 of 40,000 ledgers copied (3 %), 81/s, 7 min 57 s left (average rate of this step); "
        "1 min 15 s ago"
    )
    size = PROGRESS.model_copy(update={"unit": ProgressUnit.BYTES, "done": 1_200_000, "total": 5_000_000, "rate": 2e6})
    assert str(size).startswith("1.2 MB of 5.0 MB copied (24 %), 2.0 MB/s, ")


def test_age() -> None:
    """Ages are whole seconds, and a clock that is slow makes no negative ones."""
    assert ago(NOW, NOW) == ago(NOW + timedelta(seconds=3), NOW) == "just now"
    assert ago(NOW - timedelta(seconds=59.6), NOW) == "1 min ago"


def test_figures_are_rounded_in_text_and_exact_in_json() -> None:
    """Text shows figures with units; while it runs, in one line and without those that are zero."""
    running = view(status=status(figures=FIGURES))
    (line,) = [line for line in lines(running) if line.startswith("measured")]
    assert (
        line == "measured   build: copied 957,073 ledgers, copied 1 entry, copied 1.2 GB, 1 min 1 s; brokers away 1.9 s"
    )
    assert '"brokers_away_seconds":1.94' in running.model_dump_json()

    report = Report(
        kind="bookie-cluster",
        cluster="prod",
        outcome=Outcome.DONE_WITH_FAILURES,
        summary="prod uses b",
        history=[],
        figures=FIGURES,
        certificate={"source": "zk://a/ledgers", "references_missing": 0, "brokers_on_the_target": ["b-1", "b-2"]},
        notes=[],
        failed_items=[FailedItems.of("ledgers cannot be copied", [FailedItem(ledger_id=7, reason="no replica")])],
    )
    assert ending(view(report=report, execution="COMPLETED")) == [
        "result     done with failures: prod uses b",
        f"figure     {BUILD}",
        "figure     brokers away 1.9 s",
        "figure     new 0 ledgers",
        "certificate source: zk://a/ledgers",
        "certificate references missing 0",
        "certificate brokers on the target: b-1, b-2",
        "failed     ledger 7: no replica",
    ]


def test_values_of_other_versions() -> None:
    """Values of a newer version are shown by their names; values that do not fit the model are shown as they are."""
    model = KINDS["metadata-store"].models["figure"]
    newer = described(
        {"blocked_seconds": 0.4, "waited_seconds": 90.0, "sent_bytes": 2048, "threads": 3, "by": "scan"}, model
    )
    assert [str(figure) for figure in newer] == [
        "blocked 400 ms",
        "waited 1 min 30 s",
        "sent 2.0 kB",
        "threads 3",
        "by: scan",
    ]
    odd = described({"blocked_seconds": "long", "copied_bytes": 1e6}, model)
    assert [str(figure) for figure in odd] == ["blocked: long", "copied 1.0 MB"]
    assert [str(figure) for figure in described({"items": 3}, None)] == ["items 3"]


def test_steps_failures_and_deadlines() -> None:
    """A failed step says when it is retried; deadlines show the remaining time."""
    step = Step(
        name="bookie_cluster_build",
        attempt=3,
        last_failure="bookie b-1 is down",
        next_attempt=NOW + timedelta(seconds=8.4),
        worker="w",
        progress=None,
        waiting=None,
    )
    shown = lines(view(steps=[step], status=status(deadlines={"window": NOW + timedelta(hours=23, minutes=59.2)})))
    assert "step       bookie_cluster_build: attempt 3, next attempt in 8 s, last failure: bookie b-1 is down" in shown
    assert any(line.startswith("deadline   window: ") and line.endswith("Z, in 23 h 59 min") for line in shown)

    failed = view(status=None, execution="FAILED", failure=Failure(kind="Conflict", message="held by another"))
    assert lines(failed) == ["bookie-cluster/prod | FAILED | SWITCH", "failed     Conflict: held by another"]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (CutoverPlan(), None),
        (CutoverPlan(hold=True), "held until `proceed` (hold --off ends it)"),
        (CutoverPlan(at=NOW + timedelta(hours=2)), "not before 2026-03-01 14:00:00Z, in 2 h (cutover-at changes it)"),
        (
            CutoverPlan(window=Opening(opens=NOW, closes=NOW + timedelta(hours=6), local="Sun 13:00 CET")),
            "in a change window: Sun 13:00 CET, that is 2026-03-01T12:00Z, for 6 h (change-windows changes it)",
        ),
        (CutoverPlan(hold=True, begun=True), None),
    ],
)
def test_status_says_why_the_cutover_is_held(plan: CutoverPlan, expected: str | None) -> None:
    """Status says what holds the cut-over and how to change that, until it has begun."""
    shown = [line for line in lines(view(status=status(cutover=plan))) if line.startswith("cut-over")]
    assert shown == ([f"cut-over   {expected}"] if expected else [])


def test_only_the_newest_notes() -> None:
    """Long lists of notes end with the newest ones, and say how many were left out."""
    notes = [f"note {number}" for number in range(NOTES + 5)]
    shown = [line for line in lines(view(status=status(notes=notes))) if line.startswith("note")]
    assert (len(shown), shown[0], shown[-1]) == (
        NOTES + 1,
        "note       … 5 earlier ones: -o json",
        f"note       {notes[-1]}",
    )


def test_the_screen_folds_texts_next_to_their_names() -> None:
    """In a terminal long texts are folded into their own column, and nothing is lost."""
    out = io.StringIO()
    long = "a word " * 40
    console = Console(file=out, width=60)
    console.print(screen(view(status=status(notes=[long.strip()]))))
    shown = out.getvalue().splitlines()
    first = next(place for place, line in enumerate(shown) if line.startswith("note "))
    assert all(line.startswith(" " * 11) for line in shown[first + 1 :])
    assert " ".join(" ".join(shown[first:]).split()) == f"note {long}".strip()


def test_terminal_has_bars() -> None:
    """A terminal shows a bar for the progress, and one for each running part; none where nothing is counted."""
    half = PROGRESS.model_copy(update={"done": 20_000})
    batch = view(workflow_id="bookie-cluster/prod/batch-1", status=status(progress=half))
    assert _bars(screen_text(view())) == []
    shown = _bars(screen_text(view(status=status(progress=PROGRESS), children=[batch])))
    assert [line.split("━")[-1].split() for line in shown] == [["3", "%"], ["50", "%", "batch-1"]]


def screen_text(shown: View) -> str:
    """Return what a terminal of usual width shows."""
    out = io.StringIO()
    Console(file=out, width=100).print(screen(shown))
    return out.getvalue()


def _bars(text: str) -> list[str]:
    return [line for line in text.splitlines() if "━" in line]


def test_a_narrow_terminal_shows_every_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A long name takes no other column away: on 60 columns each letter of a row is there."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    row = (
        "scalable-topic",
        "prod/shop/orders/" + "long-name-" * 6,
        "DRAIN",
        "2 min 28 s ago",
        "waits for the operator",
    )
    print_table(("KIND", "CLUSTER", "PHASE", "SINCE", "STATE"), [row])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line) <= 60 for line in shown.splitlines())
    letters = Counter("".join(shown.split()))
    assert letters == Counter("".join(("KIND", "CLUSTER", "PHASE", "SINCE", "STATE", *row)).replace(" ", ""))
