"""Contents of the page: sentences, bars and lists for every state that a migration can have."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from typing import Any

import pytest

from models.lifecycle.status import Outcome, Progress, ProgressTask, ProgressUnit, Waiting, WaitKind
from models.lifecycle.waves import CHANGE_NOTE
from page.guide import BATCH, guides
from page.html import LISTED, list_document, migration_changes, migration_document, report_document
from page.screen import SQUARES, Screen, Tone, screen_of
from tests.support.page.recorded import statuses
from tests.support.page.views import HISTORIES, PHASES, ended, kind_of, listed, running, running_in, view_of
from views.migration import View

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\"'`&"


def screens(kind: str) -> list[Screen]:
    """Return the screens of all running states of a kind."""
    return [screen_of(*view) for name, view in running().items() if name.startswith(f"{kind}/")]


@pytest.mark.parametrize("kind", guides())
def test_guide_has_each_phase(kind: str) -> None:
    """Each phase has an undo class and break-glass steps, and the point of no return is one of the phases."""
    guide = guides()[kind]
    phases = (*guide.phases, *guide.rollback)
    assert set(guide.undo) == set(phases)
    assert guide.line in guide.phases
    assert set(guide.blocked) <= set(phases)
    for phase in phases:
        steps = guide.steps_in(phase)
        assert steps is not None
        assert steps.state
        assert steps.steps


@pytest.mark.parametrize(("kind", "phase"), PHASES)
def test_sentence(kind: str, phase: str) -> None:
    """The large sentence names the phase, and asks where the operator must act; each legal verb has its command."""
    for view, now in running_in(kind, phase):
        screen = screen_of(view, now)
        assert view.status is not None
        assert screen.headline.text.startswith(phase)
        asks = view.status.waiting is not None and bool(view.status.waiting.action)
        assert (screen.headline.tone is Tone.ASKS) == asks
        verbs = {command.verb for command in screen.commands} - {"window"}
        assert verbs == {*view.status.legal_verbs}


@pytest.mark.parametrize("name", HISTORIES)
def test_end(name: str) -> None:
    """A migration that has ended shows how, offers no command, and announces no further phase."""
    view, now = ended()[name]
    screen = screen_of(view, now)
    assert screen.commands == []
    assert "to come" not in {box.state for box in screen.phases}
    assert screen.back is None
    if view.report:
        tones = {
            Outcome.DONE: Tone.DONE,
            Outcome.PLANNED: Tone.DONE,
            Outcome.DONE_WITH_FAILURES: Tone.DANGER,
            Outcome.ROLLED_BACK: Tone.BACK,
        }
        assert screen.headline.tone is tones[view.report.outcome]
    elif view.failure:
        assert view.failure.message.split("\n")[0][:40] in screen.headline.text


def test_copies_become_equal() -> None:
    """The bars of a copy start apart, and are equal before the point of no return."""
    by_phase = {_phase(screen): screen.sides for screen in screens("metadata-store")}
    start, end = by_phase["PRE_COPY"], by_phase["VALIDATION"]
    assert start is not None
    assert end is not None
    assert (end.old, end.new, end.equal) == (12, 12, True)
    assert not start.crossing


@pytest.mark.parametrize(
    ("task", "total", "done", "new", "note"),
    [
        (ProgressTask.COPY, 12, 6, 6, ""),
        (ProgressTask.COMPARE, 24, 6, 12, "25 % compared"),
        (ProgressTask.CATCH_UP, 4, 1, 0, ""),
    ],
)
def test_only_a_copy_fills_the_new_side(task: ProgressTask, total: int, done: int, new: int, note: str) -> None:
    """The comparison counts records of both sides, and a changed record is a part only: neither is shown as copied."""
    view, now = running()["metadata-store/PRE_COPY/works"]
    assert view.status is not None
    progress = Progress(task=task, unit=ProgressUnit.RECORDS, done=done, total=total, as_of=now)
    view = view.model_copy(update={"status": view.status.model_copy(update={"progress": progress})})
    sides = screen_of(view, now).sides
    assert sides is not None
    assert (sides.old, sides.new, sides.note) == (12, new, note)


@pytest.mark.parametrize("task", [ProgressTask.PROVISION, ProgressTask.COMPARE])
def test_only_a_move_crosses(task: ProgressTask) -> None:
    """Namespaces that are compared or created have not moved."""
    view, now = running()["blue-green/PROVISION/works"]
    assert view.status is not None
    progress = Progress(task=task, unit=ProgressUnit.NAMESPACES, done=2, total=3, as_of=now)
    view = view.model_copy(update={"status": view.status.model_copy(update={"progress": progress})})
    sides = screen_of(view, now).sides
    assert sides is not None
    assert (sides.old, sides.new) == (3, 0)


@pytest.mark.parametrize("name", [name for name in HISTORIES if name.endswith(("rolled-back", "failed"))])
def test_no_bars_after_a_rollback(name: str) -> None:
    """The rest on the new side after a rollback is unknown, and is not shown as copied."""
    view, now = ended()[name]
    assert screen_of(view, now).sides is None


def test_cutover_says_its_cost() -> None:
    """A hold before the cut-over says for how long clients would wait."""
    view, now = running()["metadata-store/CATCH_UP/pause"]
    assert view.status is not None
    assert view.status.waiting is not None
    waiting = view.status.waiting.model_copy(update={"kind": WaitKind.HOLD, "action": "give `proceed` to cut over"})
    view = view.model_copy(update={"status": view.status.model_copy(update={"waiting": waiting})})
    assert screen_of(view, now).headline.text == (
        "CATCH_UP waits for you: give `proceed` to cut over. Then metadata writes are blocked for about 2.5 s."
    )


def test_an_automatic_throttle_is_the_large_sentence() -> None:
    """A copy that a server has stopped names it, and not its old progress."""
    view, now = running()["metadata-store/CATCH_UP/pause"]
    assert view.status is not None
    assert view.status.waiting is not None
    why = "the automatic throttle: http://ops/may-copy: it answers 429"
    waiting = view.status.waiting.model_copy(update={"kind": WaitKind.AUTO_THROTTLE, "why": why, "action": ""})
    progress = Progress(task=ProgressTask.COPY, unit=ProgressUnit.RECORDS, done=1, total=2, as_of=now)
    view = view.model_copy(
        update={"status": view.status.model_copy(update={"waiting": waiting, "progress": progress, "paused": False})}
    )
    assert screen_of(view, now).headline.text == f"CATCH_UP waits for {why}."


def test_fleet_crosses() -> None:
    """Namespaces leave one side and arrive on the other; squares count all of them, with the running part's wait."""
    view, now = running()["blue-green/FLIP/items"]
    screen = screen_of(view, now)
    assert screen.fleet is not None
    assert screen.sides is not None
    assert screen.sides.old + screen.sides.new == screen.sides.total == 3
    assert len(screen.fleet.squares) == 3
    with_parts = [each for each in screens("scalable-namespace") if each.fleet and each.fleet.parts]
    assert with_parts
    for each in with_parts:
        assert each.fleet is not None
        assert [square.state for square in each.fleet.squares].count("running") == 1
        assert each.fleet.parts[0].name == "acme/audit"


def test_fleet_shows_the_stop_switch_and_changes() -> None:
    """A fleet shows why the stop switch holds it, also where it holds a batch, and the last change of its waves."""
    view, now = running()["blue-green/FLIP/items"]
    assert view.status is not None
    stop = Waiting(kind=WaitKind.STOP_SWITCH, why="brokers are overloaded", since=now)
    changes = [f"2026-11-29 10:0{minute}:00Z {CHANGE_NOTE}wave_size: {minute}, changed by op" for minute in (1, 2)]
    stopped = view.status.model_copy(update={"waiting": stop, "notes": [*changes, "another note"]})
    held = screen_of(view.model_copy(update={"status": stopped}), now)
    batch = view_of(statuses("blue-green-batch")[0]).model_copy(update={"status": stopped})
    for fleet in (held.fleet, screen_of(view.model_copy(update={"children": [batch]}), now).fleet):
        assert fleet is not None
        assert fleet.stopped == "brokers are overloaded"
    assert held.headline.text == "FLIP: the stop switch is on: brokers are overloaded."
    assert held.fleet is not None
    assert held.fleet.change is not None
    assert held.fleet.change.text == "waves: wave_size: 2, changed by op"
    moving = screen_of(view, now).fleet
    assert moving is not None
    assert (moving.stopped, moving.change) == ("", None)


@pytest.mark.parametrize("name", ["blue-green-whole", "metadata-store-live"])
def test_evidence_is_named_at_the_end(name: str) -> None:
    """The page of an ended migration has the command that keeps its evidence; a running one has none."""
    view, now = ended()[name]
    assert screen_of(view, now).evidence == f"pulsar-migrate evidence {shlex.quote(view.workflow_id)} --to FOLDER"
    assert screen_of(view_of(statuses(name)[-1]), now).evidence == ""


def test_large_fleet_has_fewer_squares() -> None:
    """A square counts several items where there are too many for one screen."""
    recorded = next(each for each in statuses("blue-green-whole") if each.status.progress)
    assert recorded.status.progress is not None
    progress = recorded.status.progress.model_copy(update={"total": 10 * SQUARES, "done": 4 * SQUARES})
    view = view_of(recorded)
    assert view.status is not None
    many = view.model_copy(update={"status": view.status.model_copy(update={"progress": progress})})
    fleet = screen_of(many, recorded.at).fleet
    assert fleet is not None
    assert (fleet.each, len(fleet.squares)) == (10, SQUARES)


def test_silence_is_said() -> None:
    """Without a worker the sentence says so, and the report of an ended migration is still shown."""
    recorded = statuses("metadata-store-live")[5]
    view = view_of(recorded, status=None, silence="no worker on the queue migrations answers (timeout)")
    screen = screen_of(view, recorded.at)
    assert screen.headline.tone is Tone.SILENT
    assert recorded.status.phase in screen.headline.text
    end, now = ended()["metadata-store-live"]
    assert screen_of(end.model_copy(update={"status": None}), now).sides == screen_of(end, now).sides


def test_point_of_no_return() -> None:
    """Before the line a rollback is possible; after it the page says how to go back."""
    for name, (view, now) in running().items():
        screen = screen_of(view, now)
        if name.startswith("metadata-store/VALIDATION"):
            assert screen.back is not None
            assert (screen.back.possible, screen.back.answer) == (False, "Only by a migration back.")
        if name.startswith("metadata-store/COPYING"):
            assert screen.back is not None
            assert screen.back.possible


@pytest.mark.parametrize("name", ["metadata-store/VALIDATION/window", "blue-green/FLIP/items"])
def test_hostile_text(name: str) -> None:
    """Text from outside becomes text: no markup, no control or invisible characters."""
    view, now = running()[name]
    hostile = _hostile(view)
    for document in (migration_document(hostile, now), report_document(hostile, now)):
        assert "<script>alert" not in document
        assert "\x1b" not in document
        assert "\u202e" not in document
    changes: dict[str, Any] = migration_changes(hostile, now)
    assert "<script>alert" not in "".join(changes["parts"].values())
    assert "\x1b" not in changes["title"] + changes["spoken"]


def test_a_clock_that_differs() -> None:
    """The clocks of page and servers may differ: no time that has passed is shown as less than nothing."""
    for view, now in running().values():
        screen = screen_of(view, now - timedelta(hours=1))
        texts = [screen.headline.text, screen.blocked_for, *(box.time for box in screen.phases)]
        assert not [text for text in texts if re.search(r"(^|\s)-\d", text)]


def test_empty_list() -> None:
    """A namespace without migrations says how to start one."""
    assert "pulsar-migrate start --help" in list_document([], datetime.fromisoformat("2026-01-01T00:00:00Z"), "default")


def test_list() -> None:
    """The list leads to each migration, and says what it waits for; text from outside stays text."""
    view, now = running()["metadata-store/VALIDATION/window"]
    entry = listed(view).model_copy(update={"target": HOSTILE})
    hostile = entry.model_copy(update={"workflow_id": HOSTILE, "silence": HOSTILE})
    document = list_document([entry, hostile], now, "default")
    assert 'href="/migration/metadata-store/cluster-1"' in document
    assert "waits for the validation window" in document
    assert "<script>alert" not in document
    assert "\x1b" not in document
    assert "pulsar-migrate list --all" not in list_document([entry] * LISTED, now, "default")
    longer = list_document([entry] * (LISTED + 1), now, "default")
    assert f"These are {LISTED}, running ones first" in longer
    assert longer.count('<th scope="row">') == LISTED


def test_kinds_of_histories() -> None:
    """A part of a blue-green migration has phases of its own."""
    assert kind_of("blue-green-batch-undone") == BATCH
    view, now = running()[f"{BATCH}/QUIESCE/works"]
    assert [box.name for box in screen_of(view, now).phases][:3] == ["LOAD", "SEED", "QUIESCE"]


def _phase(screen: Screen) -> str:
    return next((box.name for box in screen.phases if box.state == "running"), "")


def _hostile(view: View) -> View:
    assert view.status is not None
    waiting = view.status.waiting
    status = view.status.model_copy(
        update={
            "target": HOSTILE,
            "cluster": HOSTILE,
            "notes": [HOSTILE, f"2026-11-28 21:07:10Z {HOSTILE}"],
            "alarms": [HOSTILE],
            "undo_cost": HOSTILE,
            "waiting": waiting and waiting.model_copy(update={"why": HOSTILE, "action": HOSTILE}),
            "facts": {**view.status.facts, "still_on_source": [HOSTILE]},
        }
    )
    return view.model_copy(update={"status": status, "workflow_id": f"metadata-store/{HOSTILE}", "silence": HOSTILE})
