"""Attempts at one step of a bookie cluster migration that run at once, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from clients.errors import StoreConflict
from clients.pulsar.records.bookie_registry import BookieRegistry
from models.bookie_registry import SwitchTarget
from models.lifecycle.claim import Attempt
from models.store_url import StoreUrl
from tests.support.clients.claims import attempt_of, open_registry
from tests.support.waiting import timeout_for

pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]

SWITCH = "a-to-b"
ROUNDS = 10

Action = Callable[[BookieRegistry], Any]


def at_once(url: StoreUrl, actions: Sequence[tuple[Attempt, Action]]) -> list[Any]:
    """Perform all actions at the same moment, each over its own session; repeat this some times."""
    start = Barrier(len(actions))

    def run(pair: tuple[Attempt, Action]) -> list[Any]:
        me, action = pair
        with open_registry(url, me) as registry:
            results: list[Any] = []
            for _ in range(ROUNDS):
                start.wait(timeout_for(30))
                results.append(action(registry))
            return results

    with ThreadPoolExecutor(len(actions)) as pool:
        return [result for results in pool.map(run, actions) for result in results]


def try_to_take(registry: BookieRegistry) -> bool:
    """Claim the switch, unless a newer attempt has it."""
    try:
        registry.claim.take()
    except StoreConflict:
        return False
    return True


def test_the_newest_attempt_holds_the_claim(url: StoreUrl) -> None:
    """Of attempts that claim a switch at the same moment the newest has it in the end, in whatever order they came."""
    attempts = [attempt_of(epoch=epoch, attempt=number) for epoch, number in ((1, 1), (2, 1), (2, 2))]
    at_once(url, [(me, try_to_take) for me in attempts])

    with open_registry(url, attempts[-1]) as newest:
        assert newest.claim.require().holder == attempts[-1]
        assert try_to_take(newest)
    for me in attempts[:-1]:
        with open_registry(url, me) as late:
            assert not try_to_take(late)


def test_pace_and_claim_at_once(url: StoreUrl) -> None:
    """A change of the pace is not lost when a new attempt begins at the same moment, and fails neither."""
    first, second = attempt_of(), attempt_of(attempt=2)
    with open_registry(url, first) as registry:
        registry.claim.take()
    at_once(
        url,
        [
            (second, lambda registry: registry.claim.take()),
            (first, lambda registry: registry.claim.change(throttle=3.0, concurrency=5)),
        ],
    )

    with open_registry(url, second) as registry:
        claim = registry.claim.require()
    assert (claim.holder, claim.throttle, claim.concurrency) == (second, 3.0, 5)


def test_one_directive_for_all_attempts(url: StoreUrl) -> None:
    """Attempts that direct brokers at the same moment give one directive, with one epoch."""
    me = attempt_of()
    with open_registry(url, me) as registry:
        registry.claim.take()

    def direct(registry: BookieRegistry) -> SwitchTarget:
        return registry.set_target("b", "switch/one/run-1/forward")

    directives = at_once(url, [(me, direct), (me, direct)])

    assert directives == directives[:1] * 2 * ROUNDS
    assert directives[0].epoch == 1


def test_release_at_once(url: StoreUrl) -> None:
    """Attempts that forget the progress at the same moment do not disturb each other."""
    me = attempt_of()
    with open_registry(url, me) as registry:
        registry.claim.take()
        top = registry.progress(SWITCH)
        for number in range(50):
            registry.store.create(f"{top}/verified/{number:010d}", b"[]")

        def again(registry: BookieRegistry) -> None:
            registry.forget_progress(SWITCH)

        at_once(url, [(me, again), (me, again)])

        assert registry.store.get(top) is None
