"""Many items in waves, on the time-skipping server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.service import RPCError
from temporalio.worker import Replayer

from models.lifecycle.change_windows import ChangeWindows
from models.lifecycle.status import WaitKind
from models.lifecycle.waves import ErrorBudget, WaveGate, WavePolicy, WavesOutcome, WhenHeld
from temporal.converter import DATA_CONVERTER
from tests.workflows.lifecycle.harness import Harness, until_at_rest
from tests.workflows.lifecycle.wave_catalog import Behaviour
from tests.workflows.lifecycle.wave_operator import Operator, Run, wave_operator
from tests.workflows.lifecycle.wave_workflows import Many
from tests.workflows.lifecycle.workers import RUNNER

STOP = WhenHeld.STOP
GOOD = Behaviour()
BAD = Behaviour(failed=("itself",))
SLOW = Behaviour(sleep=timedelta(minutes=25))
HANGING = Behaviour(hang=True)
DEAF = Behaviour(hang=True, deaf=True)
FREE = WavePolicy(canary=0, gate=WaveGate.NONE, error_budget=ErrorBudget(items=10_000))
"""Nothing holds these waves back."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(stage: Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Starts waves on a worker of their own."""
    async with wave_operator(stage.client, tmp_path_factory.mktemp("failures"), env=stage.env) as operator:
        yield operator


def _items(count: int, **others: Behaviour) -> dict[str, Behaviour]:
    return {**{f"item-{number:05d}": GOOD for number in range(count)}, **others}


@pytest.mark.exhaustive
async def test_ten_thousand_items(operator: Operator) -> None:
    """Each of 10,000 items is begun once, the canary first, inside the change windows.

    It takes several runs with short histories; failures beyond the budget and a pause hold the rest back until the
    operator decides.
    """
    bad = {f"item-{number:05d}": BAD for number in range(500, 9000, 250)}
    windows = ChangeWindows(open=("0 22 * * *",), duration=timedelta(hours=6), zone="Europe/Berlin")
    policy = WavePolicy(
        canary=50,
        wave_size=3000,
        batch_size=25,
        parallelism=20,
        gate=WaveGate.CANARY,
        error_budget=ErrorBudget(items=20),
    )
    run = await operator.start(_items(10_000) | bad, policy, windows=windows, events=300)

    status = await run.held(WaitKind.GATE)
    assert status.canary
    assert (status.counts.begun, status.counts.done, status.running) == (50, 50, 0)
    assert sorted(item for item, _, _ in run.catalog.begun) == sorted(run.catalog.items)[:50]
    await run.handle.signal("pause", True)
    await run.decide(proceed=True)
    await run.until(lambda status: status.wave == 1)
    assert len(run.catalog.begun) == 50
    await run.handle.signal("pause", False)

    status = await run.held(WaitKind.ERROR_BUDGET)
    assert status.running == 0
    assert 21 <= status.counts.failed <= 21 + policy.parallelism
    assert status.counts.begun < 8000
    assert run.catalog.recorded[: len(status.first_failures)] == [failure.path for failure in status.first_failures]
    await run.decide(proceed=True)

    end = await run.result()
    assert end.outcome is WavesOutcome.DONE
    assert (end.counts.done, end.counts.failed, end.counts.left_running) == (10_000 - len(bad), len(bad), 0)
    assert sorted(item for item, _, _ in run.catalog.begun) == sorted(run.catalog.items)
    assert sorted(run.catalog.recorded) == sorted(bad)
    assert all(windows.is_open(at) for _, at, _ in run.catalog.begun)
    await _check_histories(operator, run)


async def _check_histories(operator: Operator, run: Run) -> None:
    """Check that each run of the parent is short, names no items but those that it began or listed, and replays."""
    assert len(run.catalog.runs) >= 4
    replayer = Replayer(workflows=[Many], workflow_runner=RUNNER, data_converter=DATA_CONVERTER)
    for run_id in run.catalog.runs:
        history = await operator.client.get_workflow_handle(run.handle.id, run_id=run_id).fetch_history()
        events = history.events
        assert len(events) < 700
        assert sum(event.ByteSize() for event in events) < 256 * 1024
        # What one run hands to the next: counts and a list position.
        assert events[0].ByteSize() < 8 * 1024
        await replayer.replay_workflow(history)


async def test_one_item_for_each_child(operator: Operator) -> None:
    """An item is begun once, under the id `<parent>/<item>`, over several runs that end in the middle of waves."""
    policy = FREE.model_copy(update={"canary": 3, "wave_size": 70, "parallelism": 7})
    run = await operator.start(_items(150), policy, events=200)
    end = await run.result()
    assert (end.counts.done, end.wave) == (150, 3)
    assert sorted(item for item, _, _ in run.catalog.begun) == run.catalog.names
    assert len(run.catalog.runs) >= 3
    child = operator.client.get_workflow_handle(f"{run.handle.id}/item-00149")
    assert (await child.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_two_failing_items_stop_the_waves(operator: Operator) -> None:
    """With a budget of one item the second failing one ends the waves: both are named, and later waves do not begin."""
    policy = WavePolicy(
        canary=2, wave_size=20, parallelism=5, gate=WaveGate.NONE, error_budget=ErrorBudget(items=1), when_held=STOP
    )
    run = await operator.start(_items(200) | {"item-00030": BAD, "item-00035": BAD}, policy)
    end = await run.result()
    assert end.outcome is WavesOutcome.STOPPED
    assert "2 items failed" in end.why
    # They run at the same time, and may end in any order, also after all others of their wave.
    assert sorted(run.catalog.recorded) == ["item-00030", "item-00035"]
    assert [failure.path for failure in end.first_failures] == run.catalog.recorded
    assert end.failure_list == str(run.catalog.failures)
    assert end.counts.begun <= 2 + 2 * policy.wave_size


async def test_a_canary_that_fails_waits_for_a_decision(operator: Operator) -> None:
    """One failed item of the canary holds all others back; the operator can end the waves there."""
    policy = WavePolicy(canary=3, wave_size=20, gate=WaveGate.NONE, error_budget=ErrorBudget(items=100))
    run = await operator.start(_items(50) | {"item-00001": BAD}, policy)
    status = await run.held(WaitKind.ERROR_BUDGET)
    assert (status.counts.begun, status.counts.failed) == (3, 1)
    await run.decide(proceed=False)
    end = await run.result()
    assert end.outcome is WavesOutcome.STOPPED
    assert len(run.catalog.begun) == 3


async def test_a_gate_after_every_wave(operator: Operator) -> None:
    """Each wave waits for `proceed`, except when no items remain."""
    policy = WavePolicy(canary=1, wave_size=4, gate=WaveGate.EVERY_WAVE)
    run = await operator.start(_items(9), policy)
    for begun in (1, 5):
        status = await run.held(WaitKind.GATE)
        assert status.counts.begun == begun == len(run.catalog.begun)
        await run.decide(proceed=True)
        await run.until(lambda status, begun=begun: status.counts.begun > begun)
    end = await run.result()
    assert (end.outcome, end.counts.done, end.wave) == (WavesOutcome.DONE, 9, 2)


async def test_nothing_begins_after_not_after(operator: Operator) -> None:
    """Items that run when `not_after` passes continue to their end; no other is begun, and the waves end."""
    now = await operator.now()
    windows = ChangeWindows(not_before=now + timedelta(hours=2), not_after=now + timedelta(hours=3))
    policy = FREE.model_copy(update={"parallelism": 2, "when_held": STOP})
    run = await operator.start(dict.fromkeys(_items(10), SLOW), policy, windows=windows)
    end = await run.result()
    assert end.outcome is WavesOutcome.STOPPED
    assert "none may begin any more: outside of the change windows" in end.why
    assert 0 < end.counts.done == end.counts.begun < 10
    assert all(windows.is_open(at) for _, at, _ in run.catalog.begun)


async def test_a_later_not_after_continues_the_waves(operator: Operator) -> None:
    """A changed window and `proceed` start the remaining items of waves that wait."""
    now = await operator.now()
    run = await operator.start(_items(5), FREE, windows=ChangeWindows(not_after=now - timedelta(hours=1)))
    await run.held(WaitKind.NOT_AFTER)
    later = ChangeWindows(not_before=now + timedelta(hours=5), not_after=now + timedelta(days=1))
    await run.set_windows(later)
    await run.decide(proceed=True)
    end = await run.result()
    assert end.counts.done == 5
    assert all(later.is_open(at) for _, at, _ in run.catalog.begun)


@pytest.mark.parametrize("smaller", [200, 150])
async def test_a_smaller_wave_loses_no_item(operator: Operator, smaller: int) -> None:
    """A wave that is made smaller than it is already ends there, and the remaining items are in the next one."""
    policy = FREE.model_copy(update={"wave_size": 300, "batch_size": 50, "parallelism": 4, "gate": WaveGate.EVERY_WAVE})
    run = await operator.start(dict.fromkeys(_items(300), SLOW), policy)
    await run.until(lambda _: len(run.catalog.begun) == 200)
    # The first page has ended, and the next one is listed when a child has ended.
    await run.revise(policy.model_copy(update={"wave_size": smaller}))
    assert operator.env is not None
    await operator.env.sleep(SLOW.sleep)
    status = await run.held(WaitKind.GATE)
    assert status.counts.begun == 200
    await run.decide(proceed=True)
    end = await run.result()
    assert (end.outcome, end.counts.done) == (WavesOutcome.DONE, 300)


async def test_waves_over_nothing_are_done(operator: Operator) -> None:
    """An empty list of items ends at once, even where no item might begin."""
    now = await operator.now()
    past = ChangeWindows(not_after=now - timedelta(hours=1))
    run = await operator.start({}, WavePolicy(gate=WaveGate.EVERY_WAVE), windows=past)
    assert (await run.result()).outcome is WavesOutcome.DONE


async def test_the_source_holds_the_waves(operator: Operator) -> None:
    """While the source of the items says why none may begin, none does, and status says why."""
    run = await operator.start(_items(5), FREE, hold="the shared stop switch is set")
    status = await run.held(WaitKind.STOP_SWITCH)
    assert status.hold
    assert status.hold.why == "the shared stop switch is set"
    assert not run.catalog.begun
    run.catalog.hold = ""
    assert (await run.result()).counts.done == 5


async def test_an_item_without_end_is_cancelled(operator: Operator, stage: Harness) -> None:
    """A child past its deadline is cancelled and counts as failed, while the wave continues."""
    policy = FREE.model_copy(update={"deadline": timedelta(hours=3), "parallelism": 2})
    run = await operator.start(_items(20) | {"item-00001": HANGING}, policy)
    await run.until(lambda status: status.counts.done == 19)
    # Not to the end of the waves at once: the server would skip the grace before the child receives its cancellation.
    await stage.env.sleep(policy.deadline)
    await run.until(lambda status: status.counts.failed == 1)
    end = await run.result()
    assert (end.counts.done, end.counts.failed, end.counts.left_running) == (19, 1, 0)
    assert "did not end within 3:00:00" in end.first_failures[0].reason
    child = operator.client.get_workflow_handle(f"{run.handle.id}/item-00001")
    assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_the_stop_switch_stops_the_deadline(operator: Operator, stage: Harness) -> None:
    """Time in which the stop switch holds an item does not count; what the item itself takes does."""
    day, hour = timedelta(days=1), timedelta(hours=1)
    items = _items(5) | {
        "item-00001": Behaviour(stopped=day, sleep=2 * hour),
        "item-00002": Behaviour(stopped=day, sleep=4 * hour),
    }
    run = await operator.start(items, FREE.model_copy(update={"deadline": 3 * hour, "parallelism": 2}))
    await run.until(lambda _: len(run.catalog.begun) == 3)
    # Not to the end of the waves at once: the server would skip the last hour before the child gets its cancellation.
    await stage.env.sleep(day + 3.5 * hour)
    await run.until(lambda status: status.counts.failed == 1)
    end = await run.result()
    assert (end.counts.done, end.counts.failed) == (4, 1)
    assert [failure.path for failure in end.first_failures] == ["item-00002"]
    assert "did not end within 3:00:00" in end.first_failures[0].reason


async def test_a_shorter_deadline_counts_from_the_next_item_on(operator: Operator, stage: Harness) -> None:
    """A child that begins after the change is cancelled in time, although an older one may run for longer."""
    policy = FREE.model_copy(update={"deadline": timedelta(hours=10), "parallelism": 2})
    run = await operator.start({"item-0": HANGING, "item-1": SLOW, "item-2": HANGING}, policy)
    await run.until(lambda _: len(run.catalog.begun) == 2)
    await run.revise(policy.model_copy(update={"deadline": timedelta(hours=1)}))
    await stage.env.sleep(timedelta(minutes=30))
    await run.until(lambda _: len(run.catalog.begun) == 3)
    # Not beyond the grace, which the server would skip before the child receives its cancellation.
    await stage.env.sleep(timedelta(minutes=65))
    status = await run.until(lambda status: status.counts.failed == 1)
    assert (status.first_failures[0].path, status.running) == ("item-2", 1)
    await stage.env.sleep(policy.deadline - timedelta(minutes=90))
    await run.until(lambda status: status.counts.failed == 2)
    end = await run.result()
    assert (end.counts.done, end.counts.failed, end.counts.left_running) == (1, 2, 0)


async def test_an_item_that_ignores_its_cancellation_is_left_running(operator: Operator) -> None:
    """A child that continues after its cancellation is given up after a grace, is named, and does not hold waves."""
    policy = FREE.model_copy(update={"deadline": timedelta(hours=3), "cancel_grace": timedelta(minutes=5)})
    run = await operator.start(_items(20) | {"item-00001": DEAF}, policy)
    end = await run.result()
    assert (end.counts.done, end.counts.failed, end.counts.left_running) == (19, 1, 1)
    assert "still runs" in end.first_failures[0].reason
    child = operator.client.get_workflow_handle(f"{run.handle.id}/item-00001")
    await until_at_rest(child)
    # On a busy machine its cancellation may come before it is deaf to one.
    with suppress(RPCError):
        await child.terminate()


async def test_failures_are_repeated_unless_they_are_for_good(operator: Operator) -> None:
    """A child that fails is run again as often as the policy says; one that fails for good is run once."""
    items = _items(5) | {
        "item-00001": Behaviour(crash="no connection", crash_for_good=False),
        "item-00002": Behaviour(crash="topic is scalable already"),
    }
    run = await operator.start(items, FREE.model_copy(update={"attempts": 3}))
    end = await run.result()
    assert {failure.path: failure.reason for failure in end.first_failures} == {
        "item-00001": "no connection",
        "item-00002": "topic is scalable already",
    }
    attempts = [(item, attempt) for item, _, attempt in run.catalog.begun if item in {"item-00001", "item-00002"}]
    assert sorted(attempts) == [("item-00001", 1), ("item-00001", 2), ("item-00001", 3), ("item-00002", 1)]


async def test_an_answer_that_cannot_be_read_is_a_failed_item(operator: Operator) -> None:
    """A child whose result does not fit fails its item and not the waves."""
    run = await operator.start(_items(5) | {"item-00003": Behaviour(answer={"failed": "all"})}, FREE)
    end = await run.result()
    assert (end.counts.done, end.counts.failed) == (4, 1)
    assert "cannot be read" in end.first_failures[0].reason


async def test_a_cancelled_parent_ends_after_its_children(operator: Operator) -> None:
    """Cancelled, the waves cancel the children that run, begin no others, and end when these have ended."""
    run = await operator.start(dict.fromkeys(_items(30), HANGING), FREE.model_copy(update={"parallelism": 4}))
    await run.until(lambda _: len(run.catalog.begun) == 4)
    await run.handle.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await run.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert len(run.catalog.begun) == 4
    for name in run.catalog.names[:4]:
        child = operator.client.get_workflow_handle(f"{run.handle.id}/{name}")
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_a_foreign_child_without_end_is_a_failed_item(operator: Operator) -> None:
    """An item whose id another workflow holds for longer than the deadline counts as failed, and the wave continues."""
    run = await operator.start(_items(2) | {"item-00000": DEAF}, FREE)
    await run.until(lambda status: status.counts.done == 1)
    await until_at_rest(run.handle)
    await run.handle.terminate()
    again = await operator.again(run.catalog, FREE.model_copy(update={"deadline": timedelta(hours=2)}))
    end = await again.result()
    assert (end.counts.done, end.counts.failed) == (1, 1)
    assert "was running already" in end.first_failures[0].reason
    # The test server may have skipped the ten years after which it ends what never does.
    with suppress(RPCError):
        await operator.client.get_workflow_handle(f"{run.handle.id}/item-00000").terminate()
