"""How the slots of a Spark session are shared."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

from spark.slots import Limits, SlotScheduler, cluster_limits, local_limits
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

GOES_ON = threading.Event()


@contextmanager
def waiting(slots: SlotScheduler, tag: str) -> Generator[threading.Event]:
    """Start a thread that asks for a slot and holds it until the end; yield an event that says it has the slot."""
    got, done = threading.Event(), threading.Event()

    def ask() -> None:
        with slots.slot(tag, done, urgent=False) as has_slot:
            if has_slot:
                got.set()
                done.wait(timeout_for(30))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield got
    finally:
        done.set()
        thread.join(timeout_for(10))
        assert not thread.is_alive()


def hold(stack: ExitStack, slots: SlotScheduler, tag: str, count: int) -> None:
    """Take slots until the stack is left."""
    for _ in range(count):
        assert stack.enter_context(slots.slot(tag, GOES_ON, urgent=False))


@pytest.mark.parametrize(
    ("slots", "expected"),
    [(1, Limits(1, 1, 1)), (2, Limits(1, 1, 2)), (4, Limits(2, 3, 4)), (8, Limits(6, 7, 8)), (32, Limits(25, 28, 32))],
)
def test_a_cluster_keeps_slots_free(slots: int, expected: Limits) -> None:
    """Bulk work never has all slots of an executor cluster, if there are two, nor one run all that bulk work has."""
    assert cluster_limits(slots) == expected


def test_a_machine_shares_its_cores() -> None:
    """On one machine a second run has as many tasks as the first one."""
    limits = local_limits(2)
    assert limits.each == 2
    assert limits.bulk >= 8 * limits.each


def test_urgent_work_gets_a_slot_at_once() -> None:
    """A run that blocks clients gets a slot at once where bulk runs have all of theirs."""
    slots = SlotScheduler(lambda: Limits(3, 3, 9))
    with ExitStack() as stack:
        hold(stack, slots, "copy", 3)
        for _ in range(5):
            assert stack.enter_context(slots.slot("scan", GOES_ON, urgent=True))


def test_a_run_keeps_to_its_share() -> None:
    """A slot above the share of one run is free for the next run, which gets it at once."""
    slots = SlotScheduler(lambda: Limits(2, 3, 9))
    with ExitStack() as stack:
        hold(stack, slots, "copy", 2)
        with waiting(slots, "copy") as more, waiting(slots, "other") as other:
            assert other.wait(timeout_for(10))
            assert not more.is_set()


def test_the_run_with_the_fewest_slots_comes_first() -> None:
    """A slot that is released goes to the run with the fewest, though another one has waited longer."""
    slots = SlotScheduler(lambda: Limits(9, 3, 9))
    with ExitStack() as rest, waiting(slots, "first") as first, ExitStack() as held:
        wait_for("the first slot", first.is_set, 10)
        hold(held, slots, "copy", 1)
        hold(rest, slots, "copy", 1)
        with waiting(slots, "first") as more:
            wait_until_equal("the longest wait", lambda: slots._waiting["first"], 1, 10)  # pyright: ignore[reportPrivateUsage]
            with waiting(slots, "none") as none:
                wait_for("a wait", lambda: slots.waits("none"), 10)
                assert not slots.waits("first"), "it has one already"
                held.close()
                assert none.wait(timeout_for(10))
                assert not more.is_set()


def test_a_stopped_run_does_not_wait() -> None:
    """Stopping ends a wait for a slot; a run that must stop gets none."""
    slots = SlotScheduler(lambda: Limits(1, 1, 9))
    stopped = threading.Event()
    with ExitStack() as stack:
        hold(stack, slots, "copy", 1)
        stopped.set()
        with slots.slot("other", stopped, urgent=False) as has_slot:
            assert not has_slot
        assert not slots.waits("other")


def test_a_held_run_starts_nothing_and_is_in_no_others_way() -> None:
    """Held runs have the fewest slots, and must not come first; released, they continue. Urgent work is not held."""
    slots = SlotScheduler(lambda: Limits(2, 2, 9))
    slots.hold("held")
    with ExitStack() as stack, waiting(slots, "held") as held:
        wait_until_equal("the wait", lambda: slots._waiting["held"], 1, 10)  # pyright: ignore[reportPrivateUsage]
        assert not slots.waits("held"), "it waits for no slot"
        hold(stack, slots, "other", 1)
        with waiting(slots, "other") as other:
            assert other.wait(timeout_for(10))
        assert not held.is_set()
        with slots.slot("held", GOES_ON, urgent=True) as has_slot:
            assert has_slot
        slots.release("held")
        assert held.wait(timeout_for(10))
