"""Observers of a process: they share a thread pool, and their polling rate depends on their number."""

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
"""Seconds between two polls of an observer, as long as there are few observers."""

MAX_POLLS_PER_SECOND = 80
"""Polls of all observers of a process in a second; each takes some milliseconds of Python, and steps need time too."""

MAX_CONCURRENT_REQUESTS = 8
"""Concurrent requests to one cluster. A cluster whose brokers do not answer does not delay others."""

# Threads for starting observers, which need a store session each: a store that is down does not delay polls.
_START_THREADS = 4
# The heartbeat timeout is 10 s; a thousand observers with more frequent heartbeats would load Temporal.
_MIN_HEARTBEAT, _MAX_HEARTBEAT = 0.5, 3.0
# A timer may fire early by its resolution.
_MIN_PAUSE = 0.01


class Pollable(Protocol):
    """The interface of an observer; see `Observer`."""

    @property
    def deadline(self) -> float:
        """When something is due even if nothing changes, by the monotonic clock."""
        ...

    def poll(self) -> Observation | None:
        """Return what has changed; None for nothing."""
        ...


class Cadence:
    """Intervals of polls and heartbeats for the observers of a process."""

    def __init__(self) -> None:
        self._observers = 0

    @contextmanager
    def register(self) -> Generator[None]:
        """Count an observer while the context is open."""
        self._observers += 1
        try:
            yield
        finally:
            self._observers -= 1

    @property
    def pause(self) -> float:
        """Seconds between two polls of one observer."""
        return max(POLL_INTERVAL_SECONDS, self._observers / MAX_POLLS_PER_SECOND)

    @property
    def beat(self) -> float:
        """Seconds between two heartbeats of one observer."""
        return min(max(_MIN_HEARTBEAT, self.pause), _MAX_HEARTBEAT)

    def pause_until(self, deadline: float) -> float:
        """Return the seconds to the next poll: until the deadline, but at most the pause."""
        return max(_MIN_PAUSE, min(self.pause, deadline - time.monotonic()))


class ObservedCluster:
    """Connections to one cluster, and threads for its observers.

    Args:
        session: HTTP session; closed with this object.
        urls: addresses of brokers.
    """

    def __init__(self, session: HttpSession, urls: tuple[str, ...]) -> None:
        self.admin = PulsarAdminReader(session, urls)
        self.users = 0
        self.poll_threads = ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS, thread_name_prefix="poll")
        self.start_threads = ThreadPoolExecutor(_START_THREADS, thread_name_prefix="start-observer")

    def close(self) -> None:
        """Wait for polls of cancelled observers, which still use the connections, and close the connections. Blocks."""
        self.poll_threads.shutdown()
        self.start_threads.shutdown()
        self.admin.close()


class Observers(Closeable):
    """The observers of a process."""

    def __init__(self) -> None:
        self._cadence = Cadence()
        self._clusters: dict[tuple[object, ...], ObservedCluster] = {}

    def close(self) -> None:
        """Close the connections of observers that have not ended. Blocks."""
        for cluster in self._clusters.values():
            cluster.close()

    async def observe(
        self, runtime: Runtime, execution: Execution[ControllerInput], watching: ObserverInput
    ) -> Observation:
        """Watch connections and backlogs until something has changed.

        Raises:
            ApplicationError: the topic is deleted, or cannot be read.
        """
        info, context = activity.info(), ActivityContext()
        # Both are times of the server. The grace also counts the time in which the task waited for a worker or a
        # thread.
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
            # Clears what an earlier attempt waited for; this one may poll for days.
            await signals.report_done(context.report())
            return await poll_until_change(observer, self._cadence, cluster.poll_threads)

    @asynccontextmanager
    async def _connected(self, runtime: Runtime, input: ControllerInput) -> AsyncGenerator[ObservedCluster]:
        """Share the connections of all observers of a cluster; the last one closes them."""
        access = runtime.admin_of(input.credentials)
        # An observer that starts after files of the TLS settings have changed uses the new ones.
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
        # The memory of an attempt that died is lost: all disconnected consumers get a new grace.
        watching = watching.with_fresh_grace
    return await runtime.shared(Observers).observe(runtime, execution, watching)


async def poll_until_change(observer: Pollable, cadence: Cadence, pool: ThreadPoolExecutor) -> Observation:
    """Poll until something has changed; return that."""
    while True:
        observation = await run_in_pool(pool, observer.poll)
        if observation is not None:
            return observation
        await asyncio.sleep(cadence.pause_until(observer.deadline))


async def run_in_pool(pool: ThreadPoolExecutor, work: Callable[[], ResultT]) -> ResultT:
    """Run a function that only reads in a thread. A cancellation does not wait for its end."""
    # Logs need the activity's context.
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)


@asynccontextmanager
async def heartbeating(cadence: Cadence) -> AsyncGenerator[None]:
    """Send heartbeats of an observer while the context is open; their responses also deliver a cancellation."""

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
