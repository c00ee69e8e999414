"""Observers of consumers: how often they look, when a grace ends, and what they cost while nothing changes."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from temporalio.testing import ActivityEnvironment

from activities.lifecycle.parallel import map_sequential
from activities.topic_controller import observe, observers
from activities.topic_controller.observe import DrainRecheck, Observer, drained_by_subscription
from activities.topic_controller.observers import (
    MAX_CONCURRENT_REQUESTS,
    MAX_POLLS_PER_SECOND,
    POLL_INTERVAL_SECONDS,
    Cadence,
    Pollable,
    heartbeating,
    poll_until_change,
)
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.names import TopicName
from models.topic_controller.observation import Observation, ObserverInput
from models.topic_controller.record import Change, ControlledLayout, Mutation

TOPIC = TopicName.parse("persistent://acme/shop/orders")
SEEN = Observation(gone={"bill": ("a",)})
TIMEOUT = 60.0


class Brokers:
    """The statistics of a layout topic and of segments, in memory.

    Attributes:
        connected: `{subscription}/{consumer}` of readers.
        backlogs: of subscription `bill`, by descriptor; one that is not there does not answer.
        looks: at segments.
    """

    def __init__(self, *connected: str) -> None:
        self.connected = {*connected}
        self.backlogs: dict[str, int] = {}
        self.looks: list[str] = []

    def admin(self) -> PulsarAdminReader:
        """Return an admin client of these brokers."""
        session = HttpSession(AdminAccess(), transport=httpx.MockTransport(self._answer))
        return PulsarAdminReader(session, ["http://broker:8080"])

    def _answer(self, request: httpx.Request) -> httpx.Response:
        topic = request.url.path.removesuffix("/stats").rpartition(".")[2]
        if topic != "layout":
            self.looks.append(topic)
            if topic not in self.backlogs:
                return httpx.Response(503)
            return httpx.Response(200, json={"subscriptions": {"bill": {"msgBacklog": self.backlogs[topic]}}})
        consumers = [{"consumerName": name} for name in self.connected]
        return httpx.Response(200, json={"storageSize": 1, "subscriptions": {"reader": {"consumers": consumers}}})


def observer(brokers: Brokers, *, gone: dict[str, float] | None = None, grace: float = 60.0) -> Observer:
    """Return the observer of consumers `a` and `b`, some of which have been missed for some seconds."""
    watching = ObserverInput(epoch=0, subscriptions=("bill",), gone={"bill": gone or {}}, grace_seconds=grace)
    return Observer(
        brokers.admin(),
        topic=TOPIC,
        layout=ControlledLayout.created(2, {}, 1),
        registered={"bill": ("a", "b")},
        watching=watching,
        known_at=time.monotonic(),
    )


def split_twice() -> ControlledLayout:
    """Return a layout of which segments 0 and 1 are sealed."""
    layout = ControlledLayout.created(2, {}, 1)
    for epoch, number in enumerate((0, 1)):
        layout = layout.with_pending(Mutation(change=Change.SPLIT, segments=(number,), epoch=epoch)).with_commit(2)
    return layout


class Script:
    """An observer whose looks answer what a test says; `looked` is set with the first one."""

    deadline = math.inf

    def __init__(self, poll: Callable[[], Observation | None]) -> None:
        self._look = poll
        self.looked = threading.Event()

    def poll(self) -> Observation | None:
        """Look once."""
        self.looked.set()
        return self._look()


async def in_activity(cadence: Cadence, pollable: Pollable, pool: ThreadPoolExecutor) -> Observation:
    """Observe as the activity does."""
    async with heartbeating(cadence):
        return await poll_until_change(pollable, cadence, pool)


def test_an_attempt_that_begins_again() -> None:
    """A consumer that is back is reported, since the workflow takes it for missed; others get a fresh grace."""
    watching = ObserverInput(epoch=0, subscriptions=("bill",), gone={"bill": {"a": 3600.0, "b": 5.0}}, grace_seconds=60)
    assert watching.with_fresh_grace.gone == {"bill": {"a": 0.0, "b": 0.0}}
    brokers = Brokers("bill/a")
    seen = observer(brokers, gone=watching.with_fresh_grace.gone["bill"]).poll()
    assert seen is not None
    assert (seen.gone, seen.expired) == ({"bill": ("b",)}, {})


@pytest.mark.parametrize(
    ("count", "pause", "beat"), [(1, 0.1, 0.5), (20, 0.25, 0.5), (80, 1.0, 1.0), (200, 2.5, 2.5), (1000, 12.5, 3.0)]
)
def test_many_observers_look_less_often(count: int, pause: float, beat: float) -> None:
    """A process looks 80 times a second at most; each observer tells that it lives long before 10 s are over."""
    cadence = Cadence()
    with ExitStack() as counted:
        for _ in range(count):
            counted.enter_context(cadence.register())
        assert (cadence.pause, cadence.beat) == (pause, beat)
        assert count / cadence.pause <= MAX_POLLS_PER_SECOND
    assert cadence.pause == POLL_INTERVAL_SECONDS


def test_the_end_of_a_grace_triggers_a_check() -> None:
    """The end of a grace does not wait for the next check, however many observers there are."""
    cadence = Cadence()
    with ExitStack() as counted:
        for _ in range(1000):
            counted.enter_context(cadence.register())
        assert cadence.pause_until(math.inf) == 12.5
        begun = time.monotonic()
        pause = cadence.pause_until(begun + 10)
        assert begun + 10 - time.monotonic() <= pause <= 10
        # Without a loop that keeps a core busy.
        assert cadence.pause_until(time.monotonic() - 3) == 0.01


def test_the_first_grace_counts() -> None:
    """The next thing that is due is the end of the first grace, of those alone that are missed now."""
    brokers = Brokers("bill/b")
    before = time.monotonic()
    watching = observer(brokers, gone={"a": 3500.0, "b": 3550.0}, grace=3600.0)
    after = time.monotonic()
    assert watching.poll() == Observation(gone={"bill": ("a",)})
    assert before + 100 <= watching.deadline <= after + 100
    brokers.connected.add("bill/a")
    assert watching.poll() == Observation()
    assert watching.deadline == math.inf


def test_the_first_check_evicts_consumers_that_were_missed_for_long() -> None:
    """A grace continues while an observer waits to begin."""
    watching = observer(Brokers("bill/b"), gone={"a": 61.0})
    assert watching.poll() == Observation(gone={"bill": ("a",)}, expired={"bill": ("a",)})


def test_segments_that_are_consumed_between_two_observers() -> None:
    """Each segment is asked once, and for some time; one that does not answer may have something left."""
    brokers, layout = Brokers(), split_twice()
    brokers.backlogs = {"0000-7fff-0": 0}

    def asked(limit: float) -> dict[str, tuple[int, ...]]:
        return drained_by_subscription(brokers.admin(), TOPIC, layout, ("bill", "late"), map_sequential, limit=limit)

    assert asked(TIMEOUT) == {"bill": (0,), "late": (0,)}
    assert sorted(brokers.looks) == ["0000-7fff-0", "8000-ffff-1"]
    brokers.backlogs = {"0000-7fff-0": 1, "8000-ffff-1": 0}
    assert asked(TIMEOUT) == {"bill": (1,), "late": (0, 1)}
    looks = len(brokers.looks)
    assert (asked(0), len(brokers.looks)) == ({"bill": (), "late": ()}, looks)


def test_consumed_segments_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One segment after the other is checked; one that does not answer does not count as having messages."""
    layout, brokers = split_twice(), Brokers("bill/a")
    admin, consumed = brokers.admin(), {"bill": {0, 1}, "audit": {0}}
    recheck = DrainRecheck(admin, TOPIC, layout)
    assert (recheck.poll(consumed), len(brokers.looks)) == ({}, 1)
    # Not before its time.
    assert (recheck.poll(consumed), len(brokers.looks)) == ({}, 1)
    monkeypatch.setattr(observe, "_RECHECK_EVERY", 0.0)
    brokers.backlogs = {"0000-7fff-0": 1, "8000-ffff-1": 0}
    recheck = DrainRecheck(admin, TOPIC, layout)
    seen = [recheck.poll(consumed) for _ in range(2)]
    assert {*brokers.looks[1:]} == {"0000-7fff-0", "8000-ffff-1"}
    assert sorted(seen, key=bool) == [{}, {"bill": {0}}]
    # The event that refilled one segment may have refilled more: all are reported at once.
    brokers.backlogs["8000-ffff-1"] = 3
    assert recheck.poll(consumed) == {"bill": {0, 1}}
    assert recheck.poll({"bill": set[int](), "audit": {7}}) == {}


async def test_an_eviction_comes_in_time() -> None:
    """The end of a grace is seen at once, and not with the next check."""
    begun = time.monotonic()
    cadence, watching = Cadence(), observer(Brokers("bill/b"), gone={"a": 0.0}, grace=0.4)
    with ThreadPoolExecutor(1) as pool, ExitStack() as counted:
        for _ in range(10_000):
            counted.enter_context(cadence.register())
        assert cadence.pause == 125
        seen = await ActivityEnvironment().run(in_activity, cadence, watching, pool)
    assert seen == Observation(gone={"bill": ("a",)}, expired={"bill": ("a",)})
    assert 0.4 <= time.monotonic() - begun < 100


async def test_two_hundred_observers_share_some_threads() -> None:
    """An observer without anything to check holds no thread; all of them see what changes."""
    changed = threading.Event()
    scripts = [Script(lambda: SEEN if changed.is_set() else None) for _ in range(200)]
    cadence = Cadence()
    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="look") as pool:
        environment = ActivityEnvironment()
        tasks = [asyncio.ensure_future(environment.run(in_activity, cadence, script, pool)) for script in scripts]
        async with asyncio.timeout(TIMEOUT):
            for script in scripts:
                await asyncio.to_thread(script.looked.wait, TIMEOUT)
            assert sum(thread.name.startswith("look") for thread in threading.enumerate()) == MAX_CONCURRENT_REQUESTS
            assert cadence.pause == 2.5
            changed.set()
            assert {seen.model_dump_json() for seen in await asyncio.gather(*tasks)} == {SEEN.model_dump_json()}
    assert cadence.pause == POLL_INTERVAL_SECONDS


async def test_a_cancellation_does_not_wait_for_a_check() -> None:
    """A cancelled observer ends at once, also during a check whose broker does not answer."""
    release, entered = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert release.wait(TIMEOUT)

    with ThreadPoolExecutor(1) as pool:
        environment = ActivityEnvironment()
        task = asyncio.ensure_future(environment.run(in_activity, Cadence(), Script(hang), pool))
        assert await asyncio.to_thread(entered.wait, TIMEOUT)
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(TIMEOUT):
                await task
        assert not release.is_set()
        release.set()


async def test_an_observer_that_waits_for_a_thread_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats continue while all threads are taken by brokers that do not answer."""
    monkeypatch.setattr(observers, "_MIN_HEARTBEAT", 0.01)
    monkeypatch.setattr(Cadence, "pause", 0.01)
    release, beats = threading.Event(), asyncio.Event()
    environment, counted = ActivityEnvironment(), list[object]()

    def beat(*details: object) -> None:
        counted.append(details)
        if len(counted) == 5:
            beats.set()

    environment.on_heartbeat = beat
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait, TIMEOUT)
        task = asyncio.ensure_future(environment.run(in_activity, Cadence(), Script(lambda: SEEN), pool))
        async with asyncio.timeout(TIMEOUT):
            await beats.wait()
        assert not task.done()
        release.set()
        assert await task == SEEN
