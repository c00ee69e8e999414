"""Counts of waves, and when their error budget is exceeded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.lifecycle.failures import FailedItem
from models.lifecycle.names import MAX_ID_BYTES
from models.lifecycle.waves import (
    CANARY,
    SHOWN_FAILURES,
    BatchResult,
    ErrorBudget,
    WaveGate,
    WavePolicy,
    WaveState,
    failed_item,
)
from workflows.lifecycle.wave_children import child_id, read_batch_result


def _failed(*names: str) -> tuple[FailedItem, ...]:
    return tuple(failed_item(name, "no reason") for name in names)


batches = st.integers(1, 20).flatmap(
    lambda items: st.tuples(st.just(items), st.integers(0, items), st.integers(0, items))
)


@given(st.lists(batches, max_size=20))
def test_each_item_is_counted_once(ended: list[tuple[int, int, int]]) -> None:
    """Done, skipped and failed items add up to those that ended, with any report of a child about skipped ones."""
    state = WaveState.begin(WavePolicy())
    for items, failed, skipped in ended:
        state.count(items, BatchResult(skipped=skipped, failed=_failed(*(str(number) for number in range(failed)))))
    assert state.counts.ended == sum(items for items, _, _ in ended)
    assert state.counts.failed == sum(failed for _, failed, _ in ended)
    assert len(state.first_failures) == min(SHOWN_FAILURES, state.counts.failed)


@pytest.mark.parametrize(
    ("budget", "failed", "ended", "exceeded"),
    [
        (ErrorBudget(items=3), 3, 3, False),
        (ErrorBudget(items=3), 4, 4000, True),
        (ErrorBudget(share=0.05), 5, 5, False),
        (ErrorBudget(share=0.05), 6, 6, True),
        (ErrorBudget(share=0.05), 50, 1000, False),
        (ErrorBudget(share=0.29), 29, 100, False),
        (ErrorBudget(items=10, share=0.05), 11, 1000, True),
        (ErrorBudget(items=100, share=0.05), 51, 1000, True),
        (ErrorBudget(items=0), 0, 1000, False),
    ],
)
def test_the_error_budget_is_a_count_a_share_or_both(
    budget: ErrorBudget, failed: int, ended: int, *, exceeded: bool
) -> None:
    """One failure more than the budget exceeds it; a share is one of a whole wave at least, here of 100 items."""
    assert bool(budget.exceeded(failed, ended, 100)) == exceeded


@pytest.mark.parametrize(
    ("change", "loosened"),
    [
        ({"gate": "none"}, ("gate",)),
        ({"gate": "canary"}, ("gate",)),
        ({"wave_size": 11, "canary": 3}, ("canary", "wave_size")),
        ({"canary": 0}, ("canary",)),
        ({"error_budget": {"items": 3, "share": 0.1}}, ("error_budget",)),
        ({"error_budget": {"items": 2, "share": 0.2}}, ("error_budget",)),
        ({"error_budget": {"items": 2}}, ("error_budget",)),
        ({"error_budget": {"share": 0.1}}, ("error_budget",)),
        ({"error_budget": {"items": 1, "share": 0.1}, "wave_size": 9, "parallelism": 50, "when_held": "stop"}, ()),
    ],
)
def test_a_policy_is_looser_if_fewer_items_wait_for_a_decision(
    change: dict[str, Any], loosened: tuple[str, ...]
) -> None:
    """Gates, sizes and the error budget count, each limit of the budget on its own; speed does not."""
    old = WavePolicy(canary=2, wave_size=10, gate=WaveGate.EVERY_WAVE, error_budget=ErrorBudget(items=2, share=0.1))
    new = WavePolicy.model_validate({**old.model_dump(), **change})
    assert new.loosened_from(old) == loosened
    assert old.loosened_from(old) == ()


def test_the_canary_has_no_error_budget() -> None:
    """One failed item of the canary holds back what would be tolerated in a wave."""
    state = WaveState.begin(WavePolicy(canary=5, error_budget=ErrorBudget(items=100)))
    assert state.wave == CANARY
    state.count(5, BatchResult(failed=_failed("a")))
    assert state.budget_exceeded
    state.wave = 1
    assert not state.budget_exceeded


def test_accepted_failures_count_no_longer() -> None:
    """After a decision the budget is whole again, while the counts continue."""
    state = WaveState.begin(WavePolicy(canary=0, error_budget=ErrorBudget(items=0)))
    state.count(1, BatchResult(failed=_failed("a")))
    assert state.budget_exceeded
    state.accept_failures()
    assert not state.budget_exceeded
    assert state.counts.failed == 1


def test_a_state_survives_its_json() -> None:
    """The next run reads the state of this one; a field of a newer version does not disturb it."""
    state = WaveState.begin(WavePolicy(canary=0, wave_size=7))
    state.count(3, BatchResult(failed=_failed("a", "b")))
    written = state.model_dump_json()
    assert WaveState.model_validate_json(written) == state
    assert WaveState.model_validate({**state.model_dump(), "newer": 1}) == state


def test_ids_of_children_name_their_item_and_stay_short() -> None:
    """A child's id ends with its item; of two long items with the same begin each has its own."""
    assert child_id("blue-green/east", "tenant/ns") == "blue-green/east/tenant/ns"
    first, second = (child_id("p", "x" * 2000 + end) for end in "ab")
    assert first != second
    assert len(first.encode()) <= MAX_ID_BYTES


@pytest.mark.parametrize("result", [[], "done", {"failed": ["a"]}, {"failed": [{"path": "other"}]}])
def test_a_result_that_does_not_fit_is_an_error(result: object) -> None:
    """Items are not counted as done because their child's answer cannot be read, or speaks of others."""
    with pytest.raises(ValueError, match=r"valid|other child workflows"):
        read_batch_result(("a",), result)


def test_a_result_of_a_newer_version_is_read() -> None:
    """Unknown fields are dropped; no result at all means that everything is done."""
    assert read_batch_result(("a",), {"skipped": 1, "newer": True}) == BatchResult(skipped=1)
    assert read_batch_result(("a",), None) == BatchResult()


def test_reasons_are_cut_and_budgets_say_something() -> None:
    """A reason that a state carries is short, and an error budget without a number is refused."""
    assert len(failed_item("a", "x" * 10_000).reason) <= 300
    with pytest.raises(ValidationError):
        ErrorBudget()
