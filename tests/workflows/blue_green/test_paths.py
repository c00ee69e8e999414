"""The blue-green migration from its start to its report, without trouble and with what precheck finds."""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from models.blue_green.copies import CopyProof, FinalCopy
from models.blue_green.results import Census, CleanupStep, Completion, Flipped
from models.lifecycle.failures import Blocker, FailedItem, FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.blue_green.activities import ANSWERS, BATCH, COPYING_BATCH, NAMESPACES, READY, Script
from tests.workflows.lifecycle.harness import Harness, bound_to_plan

BLOCKER = Blocker(code="BLUE_NO_SWEEP", cause="broker-1 never looks.", cure="set it")


async def test_dry_run_gives_the_plan(stage: Harness) -> None:
    """A dry run ends after the precheck, with what would move and what green lacks."""
    run = await stage.start(Script(), dry_run=True)
    report = await run.report()
    assert (report.outcome, run.script.steps) == (Outcome.PLANNED, ["precheck"])
    assert report.summary == (
        "ready: 3 namespaces with 12 topics and 20 subscriptions; green lacks 30 of their resources"
    )


async def test_blockers_fail_the_migration(stage: Harness) -> None:
    """Blockers end a migration before anything is written; the failure lists each with its cure."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"blockers": (BLOCKER,)})))
    failure = await run.typed_failure()
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "BLUE_NO_SWEEP" in failure.message
    assert run.script.steps == ["precheck"]


async def test_questions_wait_for_the_operator(stage: Harness) -> None:
    """Questions that only an operator can decide are asked before anything is written."""
    asked = READY.model_copy(update={"questions": ("2 readers keep message ids outside of Pulsar",)})
    run = await stage.start(Script(precheck=asked))
    status = await run.until(lambda status: status.waiting is not None)
    assert status.waiting is not None
    assert status.waiting.kind is WaitKind.DECISION
    assert run.script.steps == ["precheck"]
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_whole_path(stage: Harness) -> None:
    """Each namespace is loaded, held, flipped, drained and verified; then blue gets its flag and its window.

    The start is bound to a receipt, which is not one of the batches.
    """
    run = await stage.start(Script(), **bound_to_plan(Script(), next(stage.clusters)))
    report = await run.report()
    assert run.script.steps == [
        "precheck",
        "register",
        "provision",
        "disable_load_shedding",
        *3 * BATCH,
        "complete",
        "finish",
    ]
    assert [entry.phase for entry in report.history] == ["PRECHECK", "PROVISION", "FLIP", "COMPLETE", "GRACE"]
    assert report.outcome is Outcome.DONE
    assert report.summary.startswith("3 namespaces of cluster-")
    assert report.figures["namespaces_moved"] == 3
    assert report.figures["topics_moved"] == 12
    assert report.figures["longest_quiesce_seconds"] == 1.5
    assert report.certificate["topics_compared"] == 12
    assert report.certificate["unused_subscriptions"] == 3
    assert report.certificate["cluster_flag"] is True
    window = report.history[-1]
    assert 86_400 <= window.seconds(window.started) < 86_460


async def test_backlogs_are_copied(stage: Harness) -> None:
    """With `copy` each batch copies during traffic, and the rest with the cursors while writes are quiet."""
    run = await stage.start(Script(), idle_subscriptions="copy")
    report = await run.report()
    steps = ["precheck", "register", "provision", "disable_load_shedding", *3 * COPYING_BATCH, "complete", "finish"]
    assert run.script.steps == steps
    assert (report.figures["copied_messages"], report.figures["copied_bytes"]) == (330, 16_500)
    assert report.figures["longest_final_copy_seconds"] == 0.5
    assert (report.certificate["entries_compared"], report.certificate["subscriptions_copied"]) == (132, 9)


async def test_messages_after_a_copy_count_too(stage: Harness) -> None:
    """The result of a repeated copy before the flag replaces the earlier proof, and its time is added."""
    proof = CopyProof(topics=2, entries=45, messages=111, size=5_550, subscriptions=3)
    flipped = Flipped(topics=4, seconds=2.0, final_copy=FinalCopy(seconds=0.25, proof=proof))
    run = await stage.start(Script(flip=flipped), idle_subscriptions="copy")
    report = await run.report()
    assert report.figures["copied_messages"] == 333
    assert report.figures["longest_final_copy_seconds"] == 0.75
    assert report.certificate["entries_compared"] == 135


async def test_a_copy_that_takes_too_long_is_undone(stage: Harness) -> None:
    """Writes are not held back for longer than the input says: the batch is rolled back, and nothing is flipped."""
    late = FinalCopy(seconds=15.0, in_time=False)
    run = await stage.start(Script(final_copy=late), idle_subscriptions="copy")
    # Not before: the time-skipping server does not know a listing that is cancelled while it is under way.
    failed = await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.ERROR_BUDGET)
    assert "the final copy took 15 s, longer than quiesce_timeout" in str(failed.failed_items)
    assert "undo" in run.script.steps
    assert "flip" not in run.script.steps
    await run.signal(Verb.ROLLBACK)
    await run.report()


async def test_batches_hold_several_namespaces(stage: Harness) -> None:
    """A batch moves as many namespaces as the input says."""
    waves = {"canary": 0, "wave_size": 3, "batch_size": 2, "gate": "none"}
    run = await stage.start(Script(), waves=waves)
    await run.report()
    assert run.script.steps.count("flip") == 2


async def test_batches_begin_and_flip_inside_change_windows(stage: Harness) -> None:
    """A migration begins in a window, and a batch that has lasted longer than the window flips in the next one."""
    start = await stage.env.get_current_time() + timedelta(hours=2)
    windows = {"open": [f"{start.minute} {start.hour} * * *"], "duration": "30m"}
    late = ApplicationError("the broker restarts", next_retry_delay=timedelta(minutes=40))
    # An item that waits for the window of the next day must not meet its deadline of a day.
    script, waves = Script(load=[late, ANSWERS["load"]], names=NAMESPACES[:1]), {"deadline": "P2D"}
    run = await stage.start(script, change_windows=windows, waves=waves)
    waiting = await run.until(lambda status: status.waiting is not None)
    assert waiting.waiting is not None
    assert (waiting.phase, waiting.waiting.kind) == ("PROVISION", WaitKind.CHANGE_WINDOW)
    opens = waiting.waiting.until
    assert opens is not None
    assert opens.replace(second=0) == start.replace(second=0, microsecond=0)
    report = await run.report()
    assert run.script.stages[-4:] == ["drain", "verify", "complete", "finish"]
    flip = next(entry for entry in report.history if entry.phase == "FLIP")
    assert opens <= flip.started < opens + timedelta(minutes=5)
    assert flip.ended is not None
    assert opens + timedelta(days=1) <= flip.ended < opens + timedelta(days=1, minutes=5)


async def test_what_is_left_on_blue_is_reported(stage: Harness) -> None:
    """Without the flag of the whole cluster the report names what has not moved, what uses blue, and the defect."""
    busy = FailedItem(path="persistent://acme/audit/a", reason="1 producers")
    stayed, defect = ("acme/a", "acme/b"), "SYSTEM_TOPICS_FLAGGED"
    incomplete = Completion(flagged=False, not_moved=2, stayed=stayed, defect=defect, busy=(busy,), busy_count=1)
    run = await stage.start(Script(complete=incomplete))
    report = await run.report()
    assert report.certificate["cluster_flag"] is False
    (note,) = [note for note in report.notes if "the flag of the whole cluster" in note]
    assert "would terminate their own topics (SYSTEM_TOPICS_FLAGGED)" in note
    assert "2 namespaces have not moved, such as acme/a, acme/b" in note
    assert "1 topics are in use, such as persistent://acme/audit/a" in note
    assert report.failed_items[0].items == (busy,)


async def test_namespaces_under_the_flag_of_the_cluster_are_reported(stage: Harness) -> None:
    """A namespace was created before an attempt at COMPLETE that was repeated after it had set the flag."""
    run = await stage.start(Script(complete=Completion(flagged=True, not_moved=1, stayed=("acme/new",))))
    report = await run.report()
    assert report.certificate["cluster_flag"] is True
    (note,) = [note for note in report.notes if "the flag of the whole cluster" in note]
    assert "also redirects clients of 1 namespaces that were not moved, such as acme/new: create these on green" in note


async def test_cleanup_deletes_in_bounded_steps(stage: Harness) -> None:
    """The cleanup repeats its step until nothing remains."""
    parts = [CleanupStep(deleted=10, remaining=5), CleanupStep(deleted=5, remaining=0)]
    run = await stage.start(Script(clean_up=parts), cleanup="remove", cleanup_at_window_end=True, grace_window="PT20M")
    report = await run.report()
    assert run.script.steps[-3:] == ["clean_up", "clean_up", "finish"]
    assert report.figures["deleted_topics"] == 15
    assert report.outcome is Outcome.DONE


async def test_cleanup_waits_while_clients_begin_at_blue(stage: Harness) -> None:
    """As long as clients open connections to blue, its topics stay; they are deleted when none does so any more."""
    looks = [Census(opened={"broker-1": count}) for count in (50, 53, 53)]
    run = await stage.start(Script(census=looks), cleanup="remove", cleanup_at_window_end=True, grace_window="PT5M")
    report = await run.report()
    assert any("3 connections were opened" in note for note in report.notes)
    assert run.script.steps[-2:] == ["clean_up", "finish"]


async def test_cleanup_waits_for_a_first_census(stage: Harness) -> None:
    """A cleanup without a check before it is refused: only the next check shows who connects to blue."""
    unknown = ApplicationError("blue does not answer", type=FailureKind.DENIED, non_retryable=True)
    looks = [unknown, Census(opened={"broker-1": 50}), Census(opened={"broker-1": 50})]
    run = await stage.start(Script(census=looks), cleanup="remove", cleanup_at_window_end=True, grace_window="PT5M")
    report = await run.report()
    assert any("this was the first check of connections" in note for note in report.notes)
    assert run.script.steps[-2:] == ["clean_up", "finish"]


async def test_drift_is_an_alarm(stage: Harness) -> None:
    """State that no longer is as the migration left it is shown in red."""
    run = await stage.start(Script(census=Census(drift=("the flag of acme/audit was taken off",))))
    status = await run.until(lambda status: bool(status.alarms))
    assert "the flag of acme/audit was taken off" in status.alarms[0]
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_clusters_that_replicate_need_the_address_of_green(stage: Harness) -> None:
    """A note of COMPLETE names the clusters whose record of blue leads nowhere when blue is switched off."""
    run = await stage.start(Script(precheck=READY.model_copy(update={"replicated_to": ("east", "west")})))
    report = await run.report()
    (note,) = [note for note in report.notes if "east, west may replicate to" in note]
    assert "replace its addresses there with those of green" in note


async def test_an_undrainable_topic_is_an_alarm(stage: Harness) -> None:
    """A topic that was unloaded before it was drained is shown in red in the window, with its cure."""
    undrainable = "persistent://acme/audit/log was unloaded before it was drained"
    run = await stage.start(Script(census=Census(undrainable=(undrainable,))))
    status = await run.until(lambda status: bool(status.alarms))
    assert status.alarms[0].startswith(f"{undrainable}. End this migration with proceed, and start it again")
    await run.signal(Verb.PROCEED)
    assert (await run.report()).outcome is Outcome.DONE


async def test_new_partitions_on_green_are_an_alarm(stage: Harness) -> None:
    """Partitions that clients with blue's address do not find are shown in red in the window, with the cure."""
    run = await stage.start(Script(census=Census(more_partitions=("persistent://acme/audit/log has 6 partitions",))))
    status = await run.until(lambda status: bool(status.alarms))
    assert "has 6 partitions: clients with the address of" in status.alarms[0]
    assert status.alarms[0].endswith("give them the address of green")
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_partitions_that_green_lacks_are_an_alarm(stage: Harness) -> None:
    """Partitions that only blue has are shown in red in the window, with the cure."""
    run = await stage.start(Script(census=Census(fewer_partitions=("persistent://acme/audit/log has 2 partitions",))))
    status = await run.until(lambda status: bool(status.alarms))
    assert "has 2 partitions: clients that start with the address of" in status.alarms[0]
    assert status.alarms[0].endswith("give it as many partitions on green")
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_undrained_topics_are_reported(stage: Harness) -> None:
    """Namespaces for whose topics load shedding stays off are named."""
    run = await stage.start(Script(complete=Completion(flagged=False, not_moved=1, undrained=("acme/audit",))))
    report = await run.report()
    assert any("stays off until the window ends" in note and "acme/audit" in note for note in report.notes)


async def test_cleanup_that_cannot_go_on_ends(stage: Harness) -> None:
    """A cleanup that deletes nothing any more ends, and says what stays."""
    stays = CleanupStep(deleted=0, remaining=4, refused=(FailedItem(path="persistent://acme/a/b", reason="in use"),))
    run = await stage.start(Script(clean_up=stays), cleanup="remove", cleanup_at_window_end=True, grace_window="PT1M")
    report = await run.report()
    assert any("4 topics" in note and "cannot be deleted" in note for note in report.notes)
    assert run.script.steps.count("clean_up") == 1
