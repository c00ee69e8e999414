"""How a running bookie cluster migration is steered: verbs, updates, the window, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.exceptions import ApplicationError

from models.bookie_cluster.input import Routing
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets, LedgersDeleted
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Concurrency, Pace, ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import FailureKind
from models.lifecycle.policy import VerbState
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Speed, Verb, VerbRequest
from tests.workflows.bookie_cluster.activities import (
    CENSUS,
    RESTART,
    TARGETS,
    AttributionScript,
    Script,
)
from tests.workflows.bookie_cluster.steering import window_open
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from workflows.bookie_cluster.policy import POLICIES
from workflows.bookie_cluster.updates import SwitchUpdates
from workflows.lifecycle.caller import UNNAMED

FREE = TARGETS.model_copy(update={"retained": 0, "reasons": ()})
FREE_CENSUS = CENSUS.model_copy(update={"targets": FREE})
DENIED = ApplicationError("no right to look", type=FailureKind.DENIED, non_retryable=True)
ORDER = CleanupOrder(src_cluster="old")
DUAL = ReadModeChange(mode=ReadMode.DUAL_READ)
CLOSING = ClientClosing(cluster="old")

# Verbs --------------------------------------------------------------------------------------------------------------

LEGAL: dict[str, list[Verb]] = {
    "register": [],
    "precheck": [Verb.ROLLBACK],
    "build": [Verb.ROLLBACK, Verb.PAUSE],
    "stop_brokers": [Verb.ROLLBACK, Verb.PROCEED],
    "set_target": [Verb.ROLLBACK],
    "start_brokers": [Verb.ROLLBACK, Verb.PROCEED],
    "census": [Verb.ROLLBACK, Verb.CLEANUP, Verb.PROCEED],
    "flip_statuses": [Verb.PROCEED],
}


@pytest.mark.parametrize("step", LEGAL)
async def test_early_and_late_verbs_do_no_harm(stage: Harness, step: str) -> None:
    """Each phase names its legal verbs; all others, as signal or update, are refused and change nothing."""
    hang = Hang()
    run = await stage.start(Script(**{step: hang}), rollback_window="PT1M" if step == "census" else "PT0S")
    await hang.entered()
    status = await run.status()
    assert status.legal_verbs == LEGAL[step]
    for verb in set(Verb) - set(LEGAL[step]):
        await run.signal(verb)
        assert (await run.refusal("steer", VerbRequest(verb=verb))).type == FailureKind.REFUSED
    assert (await run.status()).legal_verbs == LEGAL[step]
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


async def test_cleanup_ends_the_window(stage: Harness) -> None:
    """`cleanup` ends the window; with `leave` it deletes nothing, with `remove` it does."""
    for input, steps in (("leave", []), ("remove", ["list_targets", "delete_ledgers"])):
        run = await _open(stage, Script(), cleanup=input)
        await run.signal(Verb.CLEANUP, "all is well")
        report = await run.report()
        assert run.script.steps == [*RESTART, "census", "flip_statuses", *steps, "release"]
        assert report.outcome is Outcome.DONE


async def test_proceed_keeps_the_source(stage: Harness) -> None:
    """`proceed` ends the window and keeps the source's ledgers, whatever the plan says and whatever was said before."""
    hang = Hang()
    script = Script(census=hang)
    run = await stage.start(script, cleanup="remove", cleanup_at_window_end=True)
    await hang.entered()
    await run.signal(Verb.CLEANUP)
    await run.signal(Verb.PROCEED)
    hang.release()
    report = await run.report()
    assert script.steps[-2:] == ["flip_statuses", "release"]
    assert report.notes[-1].endswith("the ledgers of old were left as they are")


# The census ---------------------------------------------------------------------------------------------------------


async def test_census_is_shown(stage: Harness) -> None:
    """The window shows which broker uses which cluster, what a rollback would copy, and what was set again."""
    late = {"misrouted_ledgers": ("ledger 1301 of broker-2",), "misplaced": ("broker-2 uses old",)}
    seen = CENSUS.model_copy(update={**late, "attributions_set_again": 2})
    run = await _open(stage, Script(census=seen))
    status = await run.status()
    assert status.facts["brokers"] == ["broker-1: new", "broker-2: new"]
    assert status.facts["misrouted_ledgers"] == ["ledger 1301 of broker-2"]
    assert status.facts["misplaced_brokers"] == ["broker-2 uses old"]
    assert any("stop these brokers at once, and start them on new: broker-2 uses old" in note for note in status.notes)
    assert any("2 attributions that brokers had dropped were set again" in note for note in status.notes)
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_census_that_fails(stage: Harness) -> None:
    """A census that fails is a note: it neither ends the window nor rolls the switch back."""
    run = await stage.start(Script(census=DENIED), rollback_window="PT25M")
    report = await run.report()
    assert report.outcome is Outcome.DONE
    failures = [note for note in report.notes if "it could not be seen who uses which cluster: Denied" in note]
    assert len(failures) == 3
    window = report.history[-2]
    assert 25 * 60 <= window.seconds(window.started) < 26 * 60


async def test_census_that_never_answers(stage: Harness) -> None:
    """A census that fails again and again is given up after minutes; the window ends when it should."""
    unreachable = ApplicationError("no route", type=FailureKind.UNREACHABLE)
    run = await stage.start(Script(census=unreachable), rollback_window="PT12M")
    report = await run.report()
    window = report.history[-2]
    assert 12 * 60 <= window.seconds(window.started) < 18 * 60


async def test_history_of_the_longest_window(stage: Harness) -> None:
    """The longest window that a plan can have stays far below Temporal's limit of 51,200 events."""
    run = await stage.start(Script(), rollback_window="P90D")
    await run.report()
    assert await run.events() < 2_000


# Pace ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "step"), [(Script, "build"), (Script, "copy_tail"), (AttributionScript, "build")])
async def test_pace(stage: Harness, script: type[Script], step: str) -> None:
    """Throttle and concurrency change while ledgers are copied; each change keeps the other value."""
    hang = Hang()
    run = await stage.start(script(**{step: hang}), rollback_window="PT0S", throttle=20)
    await hang.entered()
    assert await run.update("set_concurrency", Concurrency(batches=4)) == {"batches": 4}
    assert await run.update("set_throttle", Speed(megabytes_per_second=2.5)) == {"megabytes_per_second": 2.5}
    await run.update("set_throttle", Speed())
    paces = [call.args[0] for call in run.script.calls if call.step == "set_pace"]
    assert paces == [Pace(throttle=throttle, concurrency=4) for throttle in (20, 2.5, None)]
    hang.release()
    report = await run.report()
    assert any(note.endswith(f"concurrency is now 4 batches, set by {UNNAMED}") for note in report.notes)
    assert any(note.endswith(f"throttle is now off, set by {UNNAMED}") for note in report.notes)


@pytest.mark.parametrize("step", ["precheck", "stop_brokers", "set_target", "start_brokers", "flip_statuses"])
async def test_pace_where_nothing_is_copied(stage: Harness, step: str) -> None:
    """The pace is refused where no ledgers are copied."""
    hang = Hang()
    run = await stage.start(Script(**{step: hang}), rollback_window="PT0S")
    await hang.entered()
    for name, argument in (("set_throttle", Speed()), ("set_concurrency", Concurrency(batches=4))):
        assert (await run.refusal(name, argument)).message == "no ledgers are copied now"
    hang.release()
    await run.report()
    assert "set_pace" not in run.script.steps


async def test_pace_of_the_rollback(stage: Harness) -> None:
    """The pace can be changed while ledgers are copied back."""
    hang = Hang()
    run = await _open(stage, Script())
    run.script.say("copy_tail", hang)
    await run.signal(Verb.ROLLBACK)
    await hang.entered()
    await run.update("set_throttle", Speed(megabytes_per_second=9))
    hang.release()
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


async def test_pace_that_cannot_be_set(stage: Harness) -> None:
    """A pace that does not reach the registry fails its update, and the switch continues with the one before."""
    hang = Hang()
    run = await stage.start(Script(build=hang, set_pace=[DENIED, None]), rollback_window="PT0S")
    await hang.entered()
    with pytest.raises(WorkflowUpdateFailedError):
        await run.update("set_throttle", Speed(megabytes_per_second=1))
    await run.update("set_concurrency", Concurrency(batches=2))
    assert run.script.calls[-1].args == (Pace(throttle=None, concurrency=2),)
    hang.release()
    assert (await run.report()).outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("update", "argument", "named"),
    [
        ("set_throttle", {"megabytes_per_second": 0}, "megabytes_per_second: Input should be greater than 0"),
        ("set_concurrency", {"batches": 0}, "batches: Input should be greater than or equal to 1"),
        ("set_read_mode", {"mode": "NONE"}, "mode: Input should be 'DUAL_READ'"),
        ("clean_up", {"src_cluster": "old", "max_deletions": 0}, "max_deletions: Input should be greater than"),
    ],
)
async def test_malformed_words(stage: Harness, update: str, argument: dict[str, Any], named: str) -> None:
    """An argument that does not fit is refused with the field's name."""
    hang = Hang()
    run = await stage.start(AttributionScript(build=hang), rollback_window="PT0S")
    await hang.entered()
    assert named in (await run.refusal(update, argument)).message
    hang.release()
    await run.report()


# Brokers with the plugin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("update", "argument"), [("set_read_mode", DUAL), ("close_client", CLOSING)])
async def test_updates_for_the_plugin_are_refused_with_restart(
    stage: Harness, update: str, argument: BaseModel
) -> None:
    """With routing `restart` there is no read mode to set and no client to close; the refusal says why."""
    run = await _open(stage, Script(census=FREE_CENSUS))
    assert (await run.refusal(update, argument)).message.startswith("routing `restart`: brokers of today read one")
    await run.signal(Verb.PROCEED)
    await run.report()


async def test_read_mode(stage: Harness) -> None:
    """The read mode is changed within the window, and status shows it."""
    run = await _open(stage, AttributionScript())
    answer = await run.update("set_read_mode", ReadModeChange(mode=ReadMode.OLD_CLUSTER_ONLY))
    assert answer == {"mode": "OLD_CLUSTER_ONLY"}
    assert (await run.status()).facts["read_mode"] == "OLD_CLUSTER_ONLY"
    await run.signal(Verb.PROCEED)
    await run.report()
    assert "set_read_mode" not in run.script.steps[-2:]


@pytest.mark.parametrize("step", ["build", "set_target"])
async def test_read_mode_before_brokers_write_to_the_target(stage: Harness, step: str) -> None:
    """Before brokers write to the target the read mode is refused."""
    hang = Hang()
    run = await stage.start(AttributionScript(**{step: hang}), rollback_window="PT0S")
    await hang.entered()
    assert "once brokers write to the target" in (await run.refusal("set_read_mode", DUAL)).message
    hang.release()
    await run.report()


async def test_read_mode_that_meets_a_rollback(stage: Harness) -> None:
    """A word that is under way when a rollback comes ends first, and the rollback has the last one."""
    hang = Hang()
    run = await _open(stage, AttributionScript(set_read_mode=[hang, None]), deletion_delay="PT0S")
    word = await run.handle.start_update(  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
        "set_read_mode",
        ReadModeChange(mode=ReadMode.NEW_CLUSTER_ONLY),
        wait_for_stage=WorkflowUpdateStage.ACCEPTED,
    )
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    await run.until(lambda status: status.phase == Phase.ROLLED_BACK)
    assert run.script.steps[-1] == "set_read_mode"
    hang.release()
    await word.result()
    await run.report()
    assert run.script.steps[-5:] == ["set_read_mode", "set_target", "promote", "remove_copies", "release"]
    assert run.script.calls[-5].args == (DUAL,)


async def test_client_is_closed(stage: Harness) -> None:
    """The old cluster's client is closed once the census finds nothing that refers to it."""
    run = await _open(stage, AttributionScript(census=FREE_CENSUS))
    assert await run.update("close_client", CLOSING) == {"cluster": "old"}
    await run.signal(Verb.PROCEED)
    await run.report()


@pytest.mark.parametrize(
    ("cluster", "named"),
    [
        ("old", "2 ledgers of old are still needed: 2 are referred to"),
        ("new", "'new' is not the cluster that this switch leaves, which is 'old'"),
    ],
)
async def test_client_that_is_needed(stage: Harness, cluster: str, named: str) -> None:
    """The client of a cluster that something refers to, or of another one, is not closed."""
    run = await _open(stage, AttributionScript())
    assert (await run.refusal("close_client", ClientClosing(cluster=cluster))).message == named
    await run.signal(Verb.PROCEED)
    await run.report()
    assert "close_client" not in run.script.steps


async def test_client_before_the_window(stage: Harness) -> None:
    """Before the window the old cluster's client is needed."""
    hang = Hang()
    run = await stage.start(AttributionScript(promote=hang), rollback_window="PT0S")
    await hang.entered()
    refusal = await run.refusal("close_client", CLOSING)
    assert refusal.message == "brokers still need the old cluster; ask again in the rollback window"
    hang.release()
    await run.report()


async def test_client_during_the_cleanup(stage: Harness) -> None:
    """During the cleanup the step itself decides whether the client can be closed."""
    hang = Hang()
    run = await stage.start(AttributionScript(flip_statuses=hang), rollback_window="PT0S")
    await hang.entered()
    assert await run.update("close_client", CLOSING) == {"cluster": "old"}
    hang.release()
    await run.report()


# Cleanup ------------------------------------------------------------------------------------------------------------


async def test_targets_are_listed(stage: Harness) -> None:
    """The query gives nothing before the first census, then its list; a dry run lists again and deletes nothing."""
    hang = Hang()
    run = await stage.start(Script(build=hang, list_targets=FREE))
    await hang.entered()
    assert await run.handle.query("list_cleanup_targets") is None
    hang.release()
    await run.until(lambda status: "target_only_ledgers" in status.facts)
    assert await _targets(run) == TARGETS
    answer = await run.update("clean_up", ORDER.model_copy(update={"dry_run": True}))
    assert CleanupTargets.model_validate(answer) == FREE == await _targets(run)
    assert (await run.status()).phase == Phase.ROLLBACK_WINDOW
    await run.signal(Verb.PROCEED)
    await run.report()
    assert "delete_ledgers" not in run.script.steps


async def test_order_ends_the_window(stage: Harness) -> None:
    """An order ends the window and deletes as it says, though the plan would leave the ledgers."""
    run = await _open(stage, Script(delete_ledgers=LedgersDeleted(deleted=10, remaining=1090)))
    order = CleanupOrder(src_cluster="old", max_deletions=10, force=True)
    assert CleanupTargets.model_validate(await run.update("clean_up", order)) == TARGETS
    report = await run.report()
    assert run.script.steps[-5:] == ["list_targets", "flip_statuses", "list_targets", "delete_ledgers", "release"]
    assert run.script.calls[-2].args == (order,)
    assert report.figures["deleted_from_source"] == 10
    assert any(f"Z cleanup (1,100 ledgers of old) by {UNNAMED}: " in note for note in report.notes)


async def test_order_that_is_taken_back(stage: Harness) -> None:
    """`proceed` takes an order back as long as the window has not ended."""
    hang = Hang()
    run = await stage.start(Script(census=hang))
    await hang.entered()
    await run.update("clean_up", ORDER)
    await run.signal(Verb.PROCEED)
    hang.release()
    await run.report()
    assert "delete_ledgers" not in run.script.steps


async def test_late_order_is_refused(stage: Harness) -> None:
    """An order whose listing outlasts the window is refused: nothing is deleted that was not asked in time."""
    hang = Hang()
    run = await _open(stage, Script(list_targets=hang))
    word = await run.handle.start_update(  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
        "clean_up", ORDER, wait_for_stage=WorkflowUpdateStage.ACCEPTED
    )
    await hang.entered()
    await run.signal(Verb.ROLLBACK)
    await run.until(lambda status: status.phase == Phase.ROLLED_BACK)
    hang.release()
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await word.result()
    assert "clean_up refused: " in str(refused.value.cause)
    assert (await run.report()).outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize(
    ("order", "named"),
    [
        (ORDER, "clean_up refused: there is nothing to clean up before the migration is committed"),
        (ORDER.model_copy(update={"dry_run": True}), "the old cluster's ledgers are in use"),
        (CleanupOrder(src_cluster="new"), "'new' is not the cluster that this switch leaves"),
    ],
)
async def test_orders_before_the_window(stage: Harness, order: CleanupOrder, named: str) -> None:
    """Before the window nothing is listed or deleted, and never another cluster."""
    hang = Hang()
    run = await stage.start(Script(start_brokers=hang), rollback_window="PT0S")
    await hang.entered()
    assert (await run.refusal("clean_up", order)).message.startswith(named)
    hang.release()
    await run.report()
    assert "list_targets" not in run.script.steps


def test_an_order_is_not_a_way_around_two_persons() -> None:
    """An order only lists where two persons must agree to a cleanup, and says how to ask."""
    policy = POLICIES[Routing.RESTART][Phase.ROLLBACK_WINDOW].with_cleanup(deletes=True)
    state = SimpleNamespace(running_phase=Phase.ROLLBACK_WINDOW)
    input = SimpleNamespace(source=SimpleNamespace(name=ORDER.src_cluster))
    switch = SimpleNamespace(input=input, state=state, verbs=VerbState(policy=policy, two_persons=True))
    updates = SwitchUpdates(cast("Any", switch))
    updates.check_clean_up(ORDER.model_copy(update={"dry_run": True}))
    with pytest.raises(ApplicationError, match="two persons must agree; one sends `cleanup`"):
        updates.check_clean_up(ORDER)


async def _open(stage: Harness, script: Script, **fields: Any) -> Run:
    """Start a switch and wait until its window is open, with the first census done."""
    run = await stage.start(script, **fields)
    await window_open(run)
    return run


async def _targets(run: Run) -> CleanupTargets:
    return CleanupTargets.model_validate(await run.handle.query("list_cleanup_targets"))
