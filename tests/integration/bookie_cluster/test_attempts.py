"""Attempts at one step of a bookie cluster switch that run at once, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from clients.pulsar.bookie_registry import BookieRegistry
from clients.zookeeper.coordination import Coordination
from models.bookie_registry import REGISTRY, SwitchClaim, SwitchTarget
from models.store_url import StoreUrl

pytest_plugins = ["tests.support.stacks", "tests.support.clients.zookeeper_stores"]

SWITCH = "a-to-b"
CLAIM = SwitchClaim(workflow_id="switch/one", run_id="run-1")
ROUNDS = 10


def take(registry: BookieRegistry) -> SwitchClaim:
    """Claim the switch."""
    return registry.take_claim(SWITCH, CLAIM)


def at_once(url: StoreUrl, *actions: Callable[[BookieRegistry], Any]) -> list[Any]:
    """Do all of these at the same moment, each over a session of its own, some times over."""
    start = Barrier(len(actions))

    def run(action: Callable[[BookieRegistry], Any]) -> list[Any]:
        with Coordination(url) as session:
            registry = BookieRegistry(session, REGISTRY)
            results: list[Any] = []
            for _ in range(ROUNDS):
                start.wait(30)
                results.append(action(registry))
            return results

    with ThreadPoolExecutor(len(actions)) as pool:
        return [result for results in pool.map(run, actions) for result in results]


def test_each_attempt_has_a_number_of_its_own(url: StoreUrl) -> None:
    """Attempts that claim a switch at the same moment all get it, one after the other."""
    claims = at_once(url, take, take)

    assert sorted(claim.attempt for claim in claims) == list(range(1, 2 * ROUNDS + 1))


def test_pace_and_claim_at_once(url: StoreUrl) -> None:
    """A change of the pace is not lost when a new attempt begins at the same moment, and fails neither."""
    with Coordination(url) as session:
        BookieRegistry(session, REGISTRY).take_claim(SWITCH, CLAIM)
    at_once(
        url,
        take,
        lambda registry: registry.set_pace(SWITCH, CLAIM.workflow_id, throttle=3.0, concurrency=5),
    )

    with Coordination(url) as session:
        found = BookieRegistry(session, REGISTRY).claim(SWITCH)
    assert found is not None
    assert (found[0].attempt, found[0].throttle, found[0].concurrency) == (ROUNDS + 1, 3.0, 5)


def test_one_directive_for_all_attempts(url: StoreUrl) -> None:
    """Attempts that direct brokers at the same moment give one directive, with one epoch."""

    def direct(registry: BookieRegistry) -> SwitchTarget:
        return registry.set_target("b", "switch/one/run-1/forward")

    directives = at_once(url, direct, direct)

    assert directives == directives[:1] * 2 * ROUNDS
    assert directives[0].epoch == 1


def test_release_at_once(url: StoreUrl) -> None:
    """Attempts that forget the progress at the same moment disturb each other as little as a claim in between."""

    def again(registry: BookieRegistry) -> None:
        registry.release(SWITCH, CLAIM.workflow_id)

    with Coordination(url) as session:
        registry = BookieRegistry(session, REGISTRY)
        registry.take_claim(SWITCH, CLAIM)
        for number in range(50):
            session.create(f"{registry.progress(SWITCH)}/verified/{number:010d}", b"[]", parents=True)
        at_once(url, again, again)

        assert session.exists(registry.progress(SWITCH)) is None
