"""The validation window of the metadata store migration, and the cleanup at its end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import NAMED, FailureKind
from models.lifecycle.status import Outcome, ProgressReport, WaitKind, WaitReason
from models.lifecycle.verbs import Verb, WindowChange
from models.metadata_store.phases import Phase
from models.metadata_store.results import Census, CleanupStep, Completion, LateWrites
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store.activities import LIVE, Script

IN_USE = Census(services=("broker-1 (a session in the source)",), unknown=())
FREE = Census(services=(), unknown=())
UNKNOWN = Census(services=(), unknown=("broker-2 did not answer",))
CLEANED = ["count_source", "clean_source"]


async def test_window_says_what_it_waits_for(stage: Harness) -> None:
    """An open window says since when and until when it waits, who can end it, and who still uses the source."""
    run = await stage.start(Script(census=IN_USE), validation_window="PT1H")
    status = await _open(run)
    waiting = status.waiting
    assert waiting is not None
    assert waiting.kind is WaitKind.WINDOW
    assert waiting.until == status.deadlines["window"] == waiting.since + timedelta(hours=1)
    assert waiting.ends_on == ("cleanup", "proceed")
    assert status.facts["still_on_source"] == ["broker-1 (a session in the source)"]
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_notes_from_steps_do_not_hide_the_window(stage: Harness) -> None:
    """A late note of a step does not replace the window's reason to wait."""
    run = await stage.start()
    await _open(run)
    late = WaitReason(kind=WaitKind.PARTICIPANTS, why="participants")
    for note in (ProgressReport(waiting=late), ProgressReport()):
        await run.handle.signal("report_progress", note)
        waiting = (await run.status()).waiting
        assert waiting is not None
        assert waiting.kind is WaitKind.WINDOW
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_cleanup_that_leaves_the_source(stage: Harness) -> None:
    """A cleanup ends the window; with `leave` it removes nothing."""
    run = await stage.start()
    await _open(run)
    await run.signal(Verb.CLEANUP, "all is well")
    report = await run.report()
    assert report.history[-1].phase == Phase.VALIDATION
    assert report.history[-1].seconds(report.history[-1].started) < 60
    assert not set(run.script.steps) & set(CLEANED)


async def test_cleanup_that_removes_the_source(stage: Harness) -> None:
    """With `remove` the cleanup counts first, and then removes in bounded steps until nothing remains."""
    parts = [
        CleanupStep(removed=5, remaining=7),
        CleanupStep(removed=5, remaining=2),
        CleanupStep(removed=2, remaining=0),
    ]
    run = await stage.start(Script(clean_source=parts, census=FREE), cleanup="remove")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    report = await run.report()
    assert run.script.steps == [*LIVE, "census", "census", "count_source", *["clean_source"] * 3]
    assert report.history[-1].phase == Phase.CLEANUP
    assert report.figures["removed_from_source"] == 12
    assert any("cleanup removes 12 records from zk:zk-1:2181/pulsar" in note for note in report.notes)


async def test_services_of_the_commit_are_known_in_the_window(stage: Harness) -> None:
    """Census and cleanup get the sessions of the commit, by which they see who has not restarted since."""
    sessions = {"bookie bookie-1": 7}
    commit = Completion(blocked_seconds=1.0, sessions=sessions)
    run = await stage.start(Script(complete=commit, census=FREE), cleanup="remove")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    await run.report()
    asked = [call for call in run.script.calls if call.step in ("census", "clean_source")]
    assert {call.step for call in asked} == {"census", "clean_source"}
    assert [call.args for call in asked] == [(sessions,)] * len(asked)


async def test_cleanup_is_refused_while_the_source_is_in_use(stage: Harness) -> None:
    """A cleanup that would hit running services is refused and names them; it is taken once they are gone."""
    run = await stage.start(Script(census=IN_USE), cleanup="remove")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    status = await run.until(lambda status: "cleanup refused" in status.notes[-1])
    assert status.notes[-1].endswith("the source is still in use: broker-1 (a session in the source)")
    await run.until(lambda status: "window" in status.deadlines)
    run.script.say("census", FREE)
    await run.signal(Verb.CLEANUP)
    report = await run.report()
    assert run.script.steps[-2:] == CLEANED
    assert report.outcome is Outcome.DONE


async def test_nothing_is_removed_while_anything_is_unknown(stage: Harness) -> None:
    """A cleanup is refused as long as something about the users of the source could not be found out."""
    run = await stage.start(Script(census=UNKNOWN), cleanup="remove")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    status = await run.until(lambda status: "cleanup refused" in status.notes[-1])
    assert status.notes[-1].endswith("it is not known who uses the source: broker-2 did not answer")
    await run.until(lambda status: "window" in status.deadlines)
    assert not set(run.script.steps) & set(CLEANED)
    run.script.say("census", FREE)
    await run.signal(Verb.CLEANUP)
    assert (await run.report()).outcome is Outcome.DONE
    assert run.script.steps[-2:] == CLEANED


async def test_a_second_proceed_ends_a_window_that_is_still_written(stage: Harness) -> None:
    """If services never stop writing to the source, `proceed` ends the window after it was refused once."""
    run = await stage.start(Script(follow=LateWrites(copied=3)))
    await _open(run)
    await run.signal(Verb.PROCEED)
    await run.until(lambda status: "a `proceed` after this note ends it" in status.notes[-1])
    await run.until(lambda status: "window" in status.deadlines)
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert any("`proceed` ended the window although services wrote" in note for note in report.notes)


async def test_writes_of_others_do_not_keep_the_window_open(stage: Harness) -> None:
    """Writes of a foreign tool are copied, and the first `proceed` ends the window."""
    run = await stage.start(Script(follow=LateWrites(copied=3, foreign=3)))
    await _open(run)
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.certificate["late_writes_followed"] == 6
    assert not any("the window stays open" in note for note in report.notes)


async def test_late_writes_keep_the_window_open(stage: Harness) -> None:
    """`proceed` checks again before the watch ends: what was written to the source is copied, and it stays open."""
    # Nothing at the first look, then something right before `proceed`.
    late = [LateWrites(), LateWrites(copied=3), LateWrites()]
    run = await stage.start(Script(follow=late))
    await _open(run)
    await run.signal(Verb.PROCEED)
    status = await run.until(lambda status: bool(status.alarms) and "window" in status.deadlines)
    assert status.alarms[0].startswith("after the commit brokers or bookies still wrote to the source")
    assert "the window stays open: services wrote to the source" in status.notes[-1]
    await run.signal(Verb.PROCEED)
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert report.certificate["late_writes_followed"] == 3
    assert [call.step for call in run.script.calls if call.step in ("follow", "forget_watch")][-2:] == [
        "follow",
        "forget_watch",
    ]


async def test_refused_cleanup_keeps_a_moved_window(stage: Harness) -> None:
    """The end that the operator gave to the window outlives a cleanup that was refused."""
    run = await stage.start(Script(census=IN_USE), cleanup="remove")
    await _open(run)
    await run.update("change_window", WindowChange(remaining=timedelta(hours=50)))
    moved = (await run.status()).deadlines["window"]
    await run.signal(Verb.CLEANUP)
    await run.until(lambda status: "cleanup refused" in status.notes[-1])
    status = await run.until(lambda status: "window" in status.deadlines)
    assert status.deadlines["window"] == moved
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_cleanup_at_the_windows_end(stage: Harness) -> None:
    """With `cleanup_at_window_end` the cleanup starts by itself, as soon as no service uses the source any more."""
    script = Script(census=[*[IN_USE] * 6, FREE])
    run = await stage.start(script, cleanup="remove", cleanup_at_window_end=True, validation_window="PT20M")
    report = await run.report()
    assert run.script.steps[-2:] == CLEANED
    assert sum("cleanup refused" in note for note in report.notes) >= 1
    window = report.history[-2]
    assert window.seconds(window.started) >= 30 * 60


@pytest.mark.parametrize("first", [Verb.CLEANUP, Verb.PROCEED])
async def test_proceed_keeps_the_source(stage: Harness, first: Verb) -> None:
    """`proceed` ends the window and keeps the source, whatever the plan says and whatever was said before or after."""
    last_census = Hang()
    script = Script(census=[FREE, last_census, FREE])
    run = await stage.start(script, cleanup="remove", cleanup_at_window_end=True)
    await _open(run)
    await run.signal(first)
    if first is Verb.CLEANUP:
        await last_census.entered()
        await run.signal(Verb.PROCEED)
        last_census.release()
    report = await run.report()
    assert report.outcome is Outcome.DONE
    assert not set(run.script.steps) & set(CLEANED)
    assert report.notes[-1].endswith("was left as it is")


async def test_proceed_ends_a_cleanup(stage: Harness) -> None:
    """A cleanup that waits can be ended: status names the verb, the step is cancelled, and the migration is done."""
    hang = Hang()
    run = await stage.start(Script(clean_source=hang), cleanup="remove")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    await hang.entered()
    late = WaitReason(kind=WaitKind.RETRY, why="the next attempt of a step: no route")
    await run.handle.signal("report_progress", ProgressReport(waiting=late))
    waiting = (await run.status()).waiting
    assert waiting is not None
    assert waiting.ends_on == ("proceed",)
    assert (await run.steer(Verb.PROCEED)).why == "the cleanup ends, and the rest stays"
    report = await run.report()
    assert (report.outcome, run.script.cancelled) == (Outcome.DONE, ["clean_source"])
    assert "the cleanup was ended by `proceed`" in report.notes[-1]


async def test_longer_window(stage: Harness) -> None:
    """A window can be made longer while it is open."""
    run = await stage.start(validation_window="PT1H")
    await _open(run)
    end = await run.update("change_window", WindowChange(remaining=timedelta(hours=30)))
    assert end.startswith(f"{(await run.status()).deadlines['window']:%Y-%m-%dT%H:%M:%S}")
    report = await run.report()
    assert 30 * 3600 <= report.history[-1].seconds(report.history[-1].started) < 30 * 3600 + 60


async def test_shorter_window(stage: Harness) -> None:
    """A window without time left ends at once, also while the census is under way."""
    census = Hang()
    run = await stage.start(Script(census=census))
    await census.entered()
    await run.update("change_window", WindowChange(remaining=timedelta(0)))
    census.release()
    report = await run.report()
    assert report.history[-1].seconds(report.history[-1].started) < 60


async def test_a_window_that_is_changed_during_a_census(stage: Harness) -> None:
    """If the window's end is moved while a census runs, a new census runs, and the old result is not used."""
    census = Hang()
    run = await stage.start(Script(census=[census, UNKNOWN]), validation_window="PT1H")
    await census.entered()
    await run.update("change_window", WindowChange(remaining=timedelta(hours=2)))
    census.release()
    status = await run.until(lambda status: "not_known" in status.facts and bool(status.facts["not_known"]))
    assert (status.phase, run.script.steps.count("census")) == (Phase.VALIDATION, 2)
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_window_cannot_be_changed_while_none_is_open(stage: Harness) -> None:
    """Before the window is open a change is refused."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang), validation_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("change_window", WindowChange(remaining=timedelta(hours=1)))
    assert (refusal.type, refusal.message) == (FailureKind.REFUSED, "no window is open")
    hang.release()
    await run.report()


async def test_history_of_the_longest_window(stage: Harness) -> None:
    """The longest window that a plan can have stays far below Temporal's limit of 51,200 events."""
    run = await stage.start(validation_window="P90D")
    report = await run.report()
    assert report.history[-1].seconds(report.history[-1].started) >= 90 * 86_400
    assert await run.events() < 2_000


@pytest.mark.parametrize(
    ("quiet", "copied", "followed"),
    [(True, (2, 1), 7), (False, (0, 0), 4), (False, (2, 1), 7)],
    ids=["in the window", "at the commit", "both"],
)
async def test_late_writes_raise_an_alarm_and_are_followed(
    stage: Harness, quiet: bool, copied: tuple[int, int], followed: int
) -> None:
    """Late writes to the source are copied at each check, shown in red, and counted."""
    first, second = copied
    late = [LateWrites(copied=first, contested=("/a",)), LateWrites(copied=second, contested=("/b",)), LateWrites()]
    script = Script(complete=Completion(blocked_seconds=1.0, late_copied=4, quiet=quiet), follow=late)
    run = await stage.start(script, validation_window="PT40M")
    status = await run.until(lambda status: bool(status.alarms))
    assert status.alarms[0].startswith("after the commit brokers or bookies still wrote to the source")
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["late_writes_followed"] == followed
    assert [str(item).partition(":")[0] for failed in report.failed_items for item in failed.items] == ["/a", "/b"]


async def test_contested_records_that_are_not_named_stay_counted(stage: Harness) -> None:
    """Records that both sides have written are counted once, also where they are too many to be named."""
    first = tuple(f"/commit/{number:03}" for number in range(NAMED))
    done = Completion(blocked_seconds=1.0, contested=first, contested_count=3000)
    again = LateWrites(contested=("/a", *first[:-1]), contested_count=3001)
    late = [again, again, LateWrites()]
    run = await stage.start(Script(complete=done, follow=late), validation_window="PT40M")
    (failed,) = (await run.report()).failed_items
    assert (failed.count, len(failed.items)) == (3001, NAMED)
    assert failed.lines()[-1] == "2,901 more contested record(s)"


async def test_a_watch_that_cannot_follow_is_reported(stage: Harness) -> None:
    """A committed migration does not fail because late writes cannot be looked for; it says so in red."""
    denied = ApplicationError("no right to read", type=FailureKind.DENIED, non_retryable=True)
    run = await stage.start(Script(follow=denied), validation_window="PT20M")
    await _open(run)
    assert (await run.report()).outcome is Outcome.DONE
    assert (await run.status()).alarms == [
        "what is still written to the source is not copied: Denied: no right to read"
    ]


@pytest.mark.parametrize("step", [CleanupStep(removed=0, remaining=5), "denied"])
async def test_a_failed_cleanup_keeps_the_report(stage: Harness, step: CleanupStep | str) -> None:
    """A committed migration ends with its report, and says what was left in the source."""
    denied = ApplicationError("no right to delete", type=FailureKind.DENIED, non_retryable=True)
    script = Script(clean_source=denied if step == "denied" else step)
    run = await stage.start(script, cleanup="remove", cleanup_at_window_end=True, validation_window="PT1M")
    report = await run.report()
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    assert report.certificate["differences"] == 0
    assert "was not cleaned up completely" in report.notes[-1]


async def _open(run: Run):
    return await run.until(lambda status: "window" in status.deadlines and "still_on_source" in status.facts)


async def test_a_census_that_fails_does_not_fail_the_migration(stage: Harness) -> None:
    """A committed migration keeps its report; if the users of the source are unknown, nothing is removed from it."""
    denied = ApplicationError("no right to read", type=FailureKind.DENIED, non_retryable=True)
    run = await stage.start(Script(census=denied), cleanup="remove", validation_window="PT20M")
    await _open(run)
    await run.signal(Verb.CLEANUP)
    status = await run.until(lambda status: any("cleanup refused" in note for note in status.notes))
    assert status.facts["still_on_source"] == ["not known: Denied: no right to read"]
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE
    assert not set(run.script.steps) & set(CLEANED)


async def test_deletions_in_the_source_are_reported(stage: Harness) -> None:
    """Records that were deleted in the source, and that the target keeps, raise an alarm."""
    run = await stage.start(Script(follow=[LateWrites(not_deleted=7), LateWrites()]), validation_window="PT20M")
    await _open(run)
    await run.report()
    (alarm,) = (await run.status()).alarms
    assert alarm.startswith("records were deleted in the source, and the target keeps them")
