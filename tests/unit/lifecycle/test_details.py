"""The current details of a migration, as the Web UI shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.status import (
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
from workflows.lifecycle.status import render

ID = "metadata-store/blue"
BEGIN = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
RECORDS = Progress(task=ProgressTask.COPY, unit=ProgressUnit.RECORDS, done=7, as_of=BEGIN)
PROGRESS = RECORDS.model_copy(
    update={"done": 2500, "total": 10000, "rate": 1250.4, "eta_seconds": 6.2, "basis": "average rate of this step"}
)

GOLDEN = """\
**PRE_COPY** · blue → `oxia://oxia-1:6648/pulsar` · running

| | phase | since | took | undo | note |
|---|---|---|---:|---|---|
| ✅ | PRECHECK | 05-04 12:00:00Z | 1.5 s | free |  |
| ▶️ | PRE_COPY | 05-04 12:00:01Z |  | free |  |

██░░░░░░░░ 2,500 of 10,000 records copied (25 %), 1,250/s, 6 s left (average rate of this step), as of 12:00:00Z

**Waits for** a bookie, since 12:00:02Z, until 2026-05-05 12:00:00Z; ends on: resume, rollback

**Please** start it

**Rollback** (free): a rollback removes the copy from the target

**Commands now**

- `pulsar-migrate rollback metadata-store/blue`
- `pulsar-migrate pause metadata-store/blue`

**Notes**

- 2026-05-04 12:00:01Z warning: the target is not empty"""


def status() -> Status:
    """Return the status of a migration that copies."""
    return Status(
        kind="metadata-store",
        cluster="blue",
        target="oxia://oxia-1:6648/pulsar",
        phase="PRE_COPY",
        outcome=Outcome.RUNNING,
        history=[
            PhaseEntry(
                phase="PRECHECK",
                started=BEGIN,
                ended=BEGIN + timedelta(seconds=1.5),
                outcome=Outcome.DONE,
                undo=Undo.FREE,
            ),
            PhaseEntry(phase="PRE_COPY", started=BEGIN + timedelta(seconds=1.5), undo=Undo.FREE),
        ],
        progress=PROGRESS,
        waiting=Waiting(
            kind=WaitKind.BOOKIES,
            why="a bookie",
            action="start it",
            since=BEGIN + timedelta(seconds=2),
            until=BEGIN + timedelta(days=1),
            ends_on=("resume", "rollback"),
        ),
        paused=False,
        undo=Undo.FREE,
        undo_cost="a rollback removes the copy from the target",
        legal_verbs=[Verb.ROLLBACK, Verb.PAUSE],
        failed_items=[],
        deadlines={},
        notes=["2026-05-04 12:00:01Z warning: the target is not empty"],
        figures={},
        facts={},
    )


def test_golden_text() -> None:
    """A running migration is shown on one screen, in Markdown."""
    assert render(status(), ID) == GOLDEN


def test_absent_fields_have_no_line() -> None:
    """Missing waits, actions and notes take no line; verbs always do."""
    bare = status().model_copy(update={"progress": None, "waiting": None, "notes": [], "legal_verbs": []})
    text = render(bare, ID)
    assert "**Please**" not in text
    assert "**Waits for**" not in text
    assert text.endswith("**Commands now**: none")


def test_only_the_last_notes_are_shown() -> None:
    """Of many notes the last eight are shown."""
    many = status().model_copy(update={"notes": [f"note {number}" for number in range(20)]})
    text = render(many, ID)
    assert [line for line in text.splitlines() if line.startswith("- note")] == [f"- note {n}" for n in range(12, 20)]


def test_table_holds_any_note() -> None:
    """A note of several lines, or with a bar, stays in its cell."""
    entry = PhaseEntry(phase="VERIFY", started=BEGIN, undo=Undo.METADATA, note="2 blockers:\n1. a|b")
    text = render(status().model_copy(update={"history": [entry]}), ID)
    assert "| VERIFY | 05-04 12:00:00Z |  | metadata | 2 blockers: 1. a\\|b |" in text.splitlines()[4]


@pytest.mark.parametrize(
    ("done", "bar"),
    [(0, "░" * 10), (999, "░" * 10), (1_000, "█" + "░" * 9), (9_999, "█" * 9 + "░"), (10_001, "█" * 10)],
)
def test_bar(done: int, bar: str) -> None:
    """The bar of text grows with the progress, and is full at the end only."""
    text = render(status().model_copy(update={"progress": PROGRESS.model_copy(update={"done": done})}), ID)
    assert f"\n{bar} {done:,} of 10,000 records" in text


def test_shows_no_age() -> None:
    """The details of a run are shown until it publishes others, so they have times and no ages."""
    assert " ago" not in render(status(), ID)
    assert "8.5" not in render(status(), ID)


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_has_its_mark(outcome: Outcome) -> None:
    """A phase of any outcome can be shown."""
    entry = PhaseEntry(phase="VERIFY", started=BEGIN, outcome=outcome, undo=Undo.METADATA, note="why")
    text = render(status().model_copy(update={"history": [entry]}), ID)
    assert "| VERIFY | 05-04 12:00:00Z |  | metadata | why |" in text


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (PROGRESS, "2,500 of 10,000 records copied (25 %), 1,250/s, 6 s left (average rate of this step)"),
        (RECORDS, "7 records copied"),
        (RECORDS.model_copy(update={"done": 0, "total": 0}), "0 records copied"),
        (RECORDS.model_copy(update={"done": 0, "total": 4}), "0 of 4 records copied (0 %)"),
    ],
)
def test_progress(progress: Progress, text: str) -> None:
    """Progress says what is known, and no more."""
    assert str(progress) == text


def test_alarms_come_first() -> None:
    """Alarms are shown in red above everything else but the headline."""
    text = render(status().model_copy(update={"alarms": ["LAB ONLY: ids < old ones"]}), ID)
    assert text.splitlines()[2] == '🔴 <span style="color:red">**LAB ONLY: ids \\< old ones**</span>'


@pytest.mark.parametrize(("count", "more"), [(2, 0), (8, 0), (1208, 1200)])
def test_failed_items_are_counted(count: int, more: int) -> None:
    """Failed items are counted; the first eight are named."""
    items = (FailedItem(ledger_id=number, reason="no replica\nanswers") for number in range(count))
    text = render(
        status().model_copy(
            update={"failed_items": [FailedItems.of("ledger(s) cannot be copied", items)], "notes": []}
        ),
        ID,
    )
    _, _, listed = text.partition(f"**Failed** ({count:,})\n\n")
    named = [f"- ledger {number}: no replica answers" for number in range(min(count, 8))]
    assert listed.splitlines() == [*named, *([f"- … and {more:,} more"] if more else [])]
