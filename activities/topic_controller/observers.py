"""All observers of one process: they cost no thread between two looks, and look as often as a process can bear."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Protocol, TypeVar

from temporalio import activity

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import report_to_workflow, this_attempt
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import async_step
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.observe import Observer, create_observer
from clients.closeable import Closeable
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.http import HttpSession, tls_context
from models.lifecycle.execution import Execution
from models.topic_controller.input import ControllerInput
from models.topic_controller.observation import Observation, ObserverInput

ResultT = TypeVar("ResultT")

POLL_INTERVAL_SECONDS = 0.1
"""Seconds between two looks of an observer, as long as there are few of them."""

MAX_POLLS_PER_SECOND = 80
"""Looks of all observers of a process in a second; each is some milliseconds of Python, and steps want theirs."""

MAX_CONCURRENT_REQUESTS = 8
"""Looks at one cluster at once. Other clusters do not wait for one whose brokers do not answer."""

# Of observers that begin, each with a session of the metadata store: those that look do not wait for one that is away.
_BEGINS = 4
# An observer's silence is noticed after 10 s; a thousand of them would keep Temporal busy if each told more often.
_FIRST_BEAT, _LONGEST_BEAT = 0.5, 3.0
# A timer may be early by its resolution.
_SHORTEST = 0.01


class Pollable(Protocol):
    """What an observer is for those who run it; see `Observer`."""

    @property
    def deadline(self) -> float:
        """When something is due though nobody does anything, by the monotonic clock."""
        ...

    def poll(self) -> Observation | None:
        """Look once."""
        ...


class Cadence:
    """How often each of the observers of a process looks, and tells that it is alive."""

    def __init__(self) -> None:
        self._observers = 0

    @contextmanager
    def register(self) -> Generator[None]:
        """Count an observer while what is inside runs."""
        self._observers += 1
        try:
            yield
        finally:
            self._observers -= 1

    @property
    def pause(self) -> float:
        """Seconds between two looks of one observer."""
        return max(POLL_INTERVAL_SECONDS, self._observers / MAX_POLLS_PER_SECOND)

    @property
    def beat(self) -> float:
        """Seconds between two heartbeats of one observer."""
        return min(max(_FIRST_BEAT, self.pause), _LONGEST_BEAT)

    def until(self, deadline: float) -> float:
        """Seconds to the next look: when something is due, however many there are, and else after the pause."""
        return max(_SHORTEST, min(self.pause, deadline - time.monotonic()))


class ObservedCluster:
    """Connections to one cluster, and threads for its observers.

    Args:
        session: is this one's to close.
        urls: addresses of brokers.
    """

    def __init__(self, session: HttpSession, urls: tuple[str, ...]) -> None:
        self.admin = PulsarAdminReader(session, urls)
        self.users = 0
        self.poll_threads = ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="look")
        self.start_threads = ThreadPoolExecutor(_BEGINS, thread_name_prefix="observe")

    def close(self) -> None:
        """Wait for looks that nobody waits for any more, which use the connections, and free them. Blocks."""
        self.poll_threads.shutdown()
        self.start_threads.shutdown()
        self.admin.close()


class Observers(Closeable):
    """All observers of this process."""

    def __init__(self) -> None:
        self._cadence = Cadence()
        self._clusters: dict[tuple[object, ...], ObservedCluster] = {}

    def close(self) -> None:
        """Free connections of observers that have not ended by themselves. Blocks."""
        for cluster in self._clusters.values():
            cluster.close()

    async def observe(
        self, runtime: Runtime, execution: Execution[ControllerInput], watching: ObserverInput
    ) -> Observation:
        """Watch connections and backlogs until something has changed.

        Raises:
            ApplicationError: the topic is gone, or cannot be looked at.
        """
        info, context = activity.info(), ActivityContext()
        # Both by the server's clock. What waited for a worker, or for a turn to begin, has waited for consumers too.
        known_at = time.monotonic() - (info.started_time - info.current_attempt_scheduled_time).total_seconds()
        attempt = this_attempt(execution)
        async with (
            report_to_workflow(runtime.client, context) as signals,
            heartbeating(self._cadence),
            self._connected(runtime, execution.input) as cluster,
        ):

            def start() -> Observer:
                with ControllerTask(runtime, execution, attempt, context) as task:
                    return create_observer(task, cluster.admin, watching, known_at)

            try:
                observer = await run_in_pool(cluster.start_threads, start)
            except asyncio.CancelledError:
                context.cancel()
                raise
            # What an earlier attempt waited for is over; this one may look for days.
            await signals.report_done(context.report())
            return await poll_until_change(observer, self._cadence, cluster.poll_threads)

    @asynccontextmanager
    async def _connected(self, runtime: Runtime, input: ControllerInput) -> AsyncGenerator[ObservedCluster]:
        """The connections that all observers of a cluster share; the last one closes them."""
        access = runtime.admin_of(input.credentials)
        # Who begins when files of the TLS settings have changed uses the new ones.
        key = (input.credentials, input.admin_urls, tls_context(access))
        shared = self._clusters.get(key)
        if shared is None:
            shared = self._clusters[key] = ObservedCluster(
                HttpSession(access, MAX_CONCURRENT_REQUESTS), input.admin_urls
            )
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                del self._clusters[key]
                asyncio.get_running_loop().run_in_executor(None, shared.close)


@async_step(ControllerTask, observes=True)
async def observe(runtime: Runtime, execution: Execution[ControllerInput], watching: ObserverInput) -> Observation:
    """Watch connections and backlogs until something has changed."""
    if activity.info().attempt > 1:
        # What an attempt that died had in memory is lost: everybody has a fresh grace.
        watching = watching.with_fresh_grace
    return await runtime.shared(Observers).observe(runtime, execution, watching)


async def poll_until_change(observer: Pollable, cadence: Cadence, lanes: ThreadPoolExecutor) -> Observation:
    """Look until something has changed."""
    while True:
        seen = await run_in_pool(lanes, observer.poll)
        if seen is not None:
            return seen
        await asyncio.sleep(cadence.until(observer.deadline))


async def run_in_pool(lanes: ThreadPoolExecutor, work: Callable[[], ResultT]) -> ResultT:
    """Read in a thread. A cancellation does not wait for its end, since nothing comes of it."""
    # With the activity's context, which logs name.
    return await asyncio.get_running_loop().run_in_executor(lanes, copy_context().run, work)


@asynccontextmanager
async def heartbeating(cadence: Cadence) -> AsyncGenerator[None]:
    """Tell Temporal that an observer is alive, while what is inside runs; its answer is how a cancellation comes."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(cadence.beat)

    with cadence.register():
        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
