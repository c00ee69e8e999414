"""The time that a migration needs until its next stop, as a range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from models.lifecycle.change_windows import Opening
from models.lifecycle.outlook import Outlook, outlook_of
from models.lifecycle.rates import RateRange, RecentRates
from models.lifecycle.status import (
    CutoverPlan,
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
from tests.support.page.recorded import statuses
from views.migration import outlook
from worker.catalog import KINDS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HELD, BEGUN = CutoverPlan(hold=True), CutoverPlan(begun=True)
ESTIMATES = {"precheck": {"estimated_copy_seconds": 100.0, "estimated_blocked_seconds": 4.0}}


def _status(kind: str, phase: str, *, age: float = 0.0, **changes: Any) -> Status[Any, Any]:
    started = NOW - timedelta(seconds=age)
    values: dict[str, Any] = {
        "kind": kind,
        "cluster": "prod",
        "target": "t",
        "phase": phase,
        "outcome": Outcome.RUNNING,
        "history": [PhaseEntry(phase=phase, started=started, undo=Undo.FREE)],
        "progress": None,
        "waiting": None,
        "paused": False,
        "undo": Undo.FREE,
        "undo_cost": "",
        "legal_verbs": [],
        "failed_items": [],
        "deadlines": {},
        "notes": [],
        "facts": {},
        "figures": {},
        "cutover": HELD,
    }
    return Status[Any, Any](**values | changes)


def _progress(task: ProgressTask, done: int, total: int, slowest: float, fastest: float) -> Progress:
    unit = ProgressUnit.RECORDS
    return Progress(task=task, unit=unit, done=done, total=total, slowest=slowest, fastest=fastest, as_of=NOW)


def _outlook(status: Status[Any, Any]) -> Outlook | None:
    return outlook_of(status, KINDS[status.kind].legs, NOW)


def test_nothing_measured_is_not_known_yet() -> None:
    """Before anything is measured, the time is not known, and the phases up to the hold are named."""
    outlook = _outlook(_status("metadata-store", "PRECHECK"))
    assert outlook is not None
    assert outlook.range == "not known yet"
    assert str(outlook) == (
        "the hold before the cut-over: not known yet (not measured yet: PRECHECK, PRE_COPY, CATCH_UP)"
    )


def test_recent_rates_give_the_range_up_to_the_hold() -> None:
    """The rest, at the slowest and the fastest recent rate, is the range up to the hold."""
    progress = _progress(ProgressTask.COMPARE, 1_000, 91_000, slowest=60.0, fastest=125.0)
    outlook = _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, progress=progress, age=300))
    assert outlook is not None
    assert (outlook.stop, outlook.range) == ("the hold before the cut-over", "12–25 min")


def test_a_step_that_is_not_the_last_one_is_added_to_what_precheck_estimated() -> None:
    """While the copy runs, the comparison after it is covered by PRECHECK's estimate."""
    progress = _progress(ProgressTask.COPY, 500, 1_000, slowest=25.0, fastest=50.0)
    outlook = _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, progress=progress, age=20))
    assert outlook is not None
    assert (outlook.soonest_seconds, outlook.latest_seconds) == (30.0, 180.0)


def test_without_a_hold_the_cutover_is_added_up_to_the_window() -> None:
    """Without a hold the way leads through the cut-over to the validation window."""
    plan = CutoverPlan()
    progress = _progress(ProgressTask.COMPARE, 0, 600, slowest=10.0, fastest=10.0)
    outlook = _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, progress=progress, cutover=plan))
    assert outlook is not None
    assert (outlook.stop, outlook.soonest_seconds, outlook.latest_seconds) == ("the window VALIDATION", 62.0, 68.0)


def test_a_time_that_is_set_for_the_cutover_counts() -> None:
    """A cut-over that starts at a set time is not expected before it."""
    plan = CutoverPlan(at=NOW + timedelta(hours=1))
    waiting = Waiting(kind=WaitKind.HOLD, why="the cut-over begins", since=NOW, until=plan.at)
    while_copying = _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, cutover=plan))
    at_the_hold = _outlook(_status("metadata-store", "CATCH_UP", facts=ESTIMATES, cutover=plan, waiting=waiting))
    assert while_copying is not None
    assert at_the_hold is not None
    assert while_copying.range == at_the_hold.range == "1 h"


def test_a_change_window_counts() -> None:
    """A cut-over is not expected before its change window; a window that is open already changes nothing."""
    opens = NOW + timedelta(hours=2)
    plan = CutoverPlan(window=Opening(opens=opens, closes=opens + timedelta(hours=1)))
    waiting = Waiting(kind=WaitKind.CHANGE_WINDOW, why="outside of the change windows", since=NOW, until=opens)
    while_copying = _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, cutover=plan))
    at_the_hold = _outlook(_status("metadata-store", "CATCH_UP", facts=ESTIMATES, cutover=plan, waiting=waiting))
    assert while_copying is not None
    assert at_the_hold is not None
    assert while_copying.range == at_the_hold.range == "2 h"
    open_now = CutoverPlan(window=Opening(opens=NOW, closes=opens))
    soon, always = (
        _outlook(_status("metadata-store", "PRE_COPY", facts=ESTIMATES, cutover=each))
        for each in (open_now, CutoverPlan())
    )
    assert soon == always


@pytest.mark.parametrize(("phase", "missing"), [("PROVISION", ("FLIP", "COMPLETE")), ("FLIP", ("FLIP", "COMPLETE"))])
def test_a_change_window_is_exact_and_what_follows_is_added(phase: str, missing: tuple[str, ...]) -> None:
    """A wait for a change window lasts until it opens; at the hold nothing else of its phase is left."""
    waiting = Waiting(kind=WaitKind.CHANGE_WINDOW, why="a window", since=NOW, until=NOW + timedelta(minutes=30))
    plan = CutoverPlan(begun=phase == "FLIP")
    outlook = _outlook(_status("blue-green", phase, waiting=waiting, cutover=plan))
    assert outlook is not None
    assert (outlook.soonest_seconds, outlook.not_measured) == (1800.0, missing)


def test_the_end_of_a_window_is_exact() -> None:
    """A window ends at its time: both ends of the range are that time."""
    until = NOW + timedelta(hours=23, minutes=12)
    waiting = Waiting(kind=WaitKind.WINDOW, why="the validation window", since=NOW, until=until)
    outlook = _outlook(_status("metadata-store", "VALIDATION", waiting=waiting, cutover=BEGUN))
    assert str(outlook) == "23 h 12 min until the end of the validation window (by the time that is set)"


@pytest.mark.parametrize("kind", [WaitKind.HOLD, WaitKind.PAUSE, WaitKind.DECISION, WaitKind.GATE])
def test_a_wait_for_a_person_has_no_outlook(kind: WaitKind) -> None:
    """A migration that waits for a person now has no time ahead: the wait itself says what to do."""
    waiting = Waiting(kind=kind, why="an operator", since=NOW)
    assert _outlook(_status("bookie-cluster", "BUILD", waiting=waiting)) is None


def test_work_that_stalls_has_no_upper_end() -> None:
    """Work that did nothing in a part of the recent time has a lower end only."""
    progress = _progress(ProgressTask.COPY, 1, 121, slowest=0.0, fastest=2.0)
    outlook = _outlook(_status("bookie-cluster", "BUILD", progress=progress))
    assert outlook is not None
    assert outlook.range == "at least 1 min"


@pytest.mark.parametrize(("slowest", "fastest", "text"), [(0.0, 1e-320, "not known yet"), (1e-320, 9.0, "at least 10")])
def test_a_rate_that_leads_beyond_all_numbers(slowest: float, fastest: float, text: str) -> None:
    """A client that may signal can report such a rate; the status can be shown all the same."""
    status = _status("metadata-store", "PRE_COPY", progress=_progress(ProgressTask.COPY, 10, 100, slowest, fastest))
    assert text in str(_outlook(status))


def test_gates_between_waves_are_named_and_not_counted() -> None:
    """Waves name their gates, which wait for persons, and what follows them."""
    progress = _progress(ProgressTask.MIGRATE, 20, 80, slowest=0.1, fastest=0.2)
    outlook = _outlook(_status("blue-green", "FLIP", progress=progress, cutover=BEGUN))
    assert str(outlook) == (
        "5–10 min and more until the window GRACE (not measured yet: COMPLETE; without the gates between waves; by the "
        "slowest and fastest recent rate)"
    )


def test_a_rollback_leads_to_its_own_end() -> None:
    """A rollback is not on the way to the cut-over; its end is the next stop."""
    outlook = _outlook(_status("bookie-cluster", "ROLLED_BACK"))
    assert outlook is not None
    assert outlook.stop == "the end of ROLLED_BACK"


def test_a_rehearsal_leads_to_the_end_of_its_last_phase() -> None:
    """A dry run and a rehearsal have no hold: they end after their last phase."""
    outlook = _outlook(_status("metadata-store", "PRE_COPY", last_phase="PRE_COPY"))
    assert outlook is not None
    assert (outlook.stop, outlook.not_measured) == ("the end of PRE_COPY", ("PRE_COPY",))


@pytest.mark.parametrize(
    ("history", "phase", "name"),
    [
        ("metadata-store-live", "VALIDATION", "validation"),
        ("bookie-cluster-restart", "ROLLBACK_WINDOW", "rollback"),
        ("blue-green-whole", "GRACE", "grace"),
    ],
)
def test_a_whole_run_leads_from_stop_to_stop(history: str, phase: str, name: str) -> None:
    """The statuses of a saved run without a hold name its stops, one after the other."""
    outlooks = [outlook(recorded.status, recorded.at) for recorded in statuses(history)]
    stops = dict.fromkeys(outlook.stop for outlook in outlooks if outlook)
    window = (f"the end of {phase}", f"the end of the {name} window")
    assert list(stops) == [f"the window {phase}", *window, "the end of CLEANUP"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_leg_has_phases_of_its_kind(kind: Any) -> None:
    """The legs of a kind name its phases, each once, in their order."""
    named = [phase for leg in kind.legs for phase in leg.phases]
    assert named == [phase for phase in kind.phases if phase in named]


def test_recent_rates_are_the_slowest_and_the_fastest_part() -> None:
    """Work that speeds up from 10 to 30 a second has both as its range."""
    rates = RecentRates()
    for second in range(20):
        rates.add(second, 10 * second if second <= 10 else 100 + 30 * (second - 10))
    assert rates.range() == RateRange(10.0, 30.0)


def test_work_in_batches_is_measured_over_longer_parts() -> None:
    """Work that counts only once in a while is not taken for work that stalls."""
    rates = RecentRates()
    for second in range(25):
        rates.add(second, 100 * (second // 8))
    recent = rates.range()
    assert recent is not None
    assert 0 < recent.slowest <= 12.5 <= recent.fastest


def test_a_stall_in_half_of_the_time_is_the_slowest_rate() -> None:
    """Work that stopped long ago has 0 as its slowest rate."""
    rates = RecentRates()
    for second in range(21):
        rates.add(second, min(second, 8))
    assert rates.range() == RateRange(0.0, 0.8)


def test_a_rest_is_not_part_of_the_rates() -> None:
    """Counts before a rest are forgotten with it."""
    rates = RecentRates()
    for second in range(10):
        rates.add(second, second)
    rates.restart()
    rates.add(1_000, 10)
    assert rates.range() is None


def test_a_count_that_begins_again_is_measured_by_itself() -> None:
    """A second round of the same work gives no rate below 0, and the first round is not part of its rate."""
    rates = RecentRates()
    for second in range(20):
        rates.add(second, 10 * second if second < 10 else 5 * (second - 10))
        assert rates.range() in {None, RateRange(10.0, 10.0), RateRange(5.0, 5.0)}
    assert rates.range() == RateRange(5.0, 5.0)
