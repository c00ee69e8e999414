"""Cost of controllers of many idle topics on one worker, and the time of a split next to them.

`python -m bench.topic_controller.idle`, on servers of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from bench.lifecycle.machine import machine, positive, tell
from bench.lifecycle.measure import serving_worker
from bench.lifecycle.processes import cpu_seconds, rss_bytes, tree
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from models.lifecycle.names import TASK_QUEUE
from models.topic_controller.input import ControllerInput, SplitRequest, SubscriptionRequest
from models.topic_controller.sessions import GraceChange, Registrations
from pulsar_devstack.servers.provision import provision
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.two_clusters import create_namespace
from temporal.converter import DATA_CONVERTER

_CLUSTER, _NAMESPACE, _SUBSCRIPTION = "bench", "bench/idle", "bill"
_AT_ONCE = 16
_TIMEOUT = 600.0
_SPLITS = 5
_OBSERVE = "topic_controller_observe"

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Idle:
    """Measured figures.

    Attributes:
        topics: with a controller.
        observed: those of them that have a session of an ordered consumer.
        begin_seconds: until all controllers and sessions were there.
        rss_bytes_before: of the worker's own process, before there were any.
        rss_bytes: of the same with all of them.
        cpu_seconds: of the same while nothing changed.
        temporal_cpu_seconds, broker_cpu_seconds: of these servers in the measured time.
        idle_seconds: how long that was.
        events: growth of all histories together in the measured time.
        split_seconds: of each split, with all other topics idle, with and without a session.
    """

    topics: int
    observed: int
    begin_seconds: float
    rss_bytes_before: int
    rss_bytes: int
    cpu_seconds: float
    temporal_cpu_seconds: float
    broker_cpu_seconds: float
    idle_seconds: float
    events: int
    split_seconds: dict[str, list[float]]


class Topics:
    """The controllers of many topics.

    Args:
        client: of Temporal.
        stack: the cluster of the topics.
        count: of them.
        observed: how many have a session of an ordered consumer.
    """

    def __init__(self, client: Client, stack: Stack, count: int, observed: int) -> None:
        self._client = client
        self._stack = stack
        self._numbers = range(count)
        self._observed = range(min(observed, count))

    async def begin(self) -> None:
        """Start all controllers, and register the consumers; returns when all are led, and observed."""
        await _each(self._numbers, self._lead)
        tell(f"{len(self._numbers)} topics are led")
        await _each(self._observed, self._join)
        tell(f"{len(self._observed)} consumers are registered")
        await _each(self._observed, self._until_observed)

    async def events(self) -> int:
        """Return the length of all histories together."""
        descriptions = await _each(self._numbers, lambda number: self._handle(number).describe())
        return sum(int(description.history_length) for description in descriptions)

    async def split(self) -> dict[str, list[float]]:
        """Split some topics, one after the other; the seconds of each."""
        own = self._numbers[len(self._observed) :]
        return {
            "with a session": [await self._split(number) for number in self._observed[:_SPLITS]],
            "without": [await self._split(number) for number in own[:_SPLITS]],
        }

    def _handle(self, number: int) -> Any:
        # The SDK's annotations of updates are partly untyped.
        return self._client.get_workflow_handle(self._input(number).workflow_id)

    def _input(self, number: int) -> ControllerInput:
        return ControllerInput.model_validate(
            {
                "cluster": _CLUSTER,
                "metadata_url": self._stack.metadata_url,
                "admin_urls": self._stack.admin_urls,
                "topic": f"persistent://{_NAMESPACE}/idle-{number}",
                "segments": 1,
            }
        )

    async def _lead(self, number: int) -> None:
        given = self._input(number)
        await self._client.start_workflow("TopicController", given, id=given.workflow_id, task_queue=TASK_QUEUE)
        await _until(lambda: self._handle(number).query("layout"))

    async def _join(self, number: int) -> None:
        async def ask(update: str, request: BaseModel) -> None:
            await self._handle(number).execute_update(update, request)

        await ask("create_subscription", SubscriptionRequest(name=_SUBSCRIPTION))
        # No consumer reads, and none is evicted: otherwise the topic would not be idle.
        await ask("set_grace", GraceChange(grace=timedelta(days=1)))
        await ask("register", Registrations(subscription=_SUBSCRIPTION, consumers=("a",)))

    async def _until_observed(self, number: int) -> None:
        async def is_observed() -> bool:
            # After the first poll, which misses the consumer.
            if not (await self._handle(number).query("status"))["away"]:
                return False
            pending = (await self._handle(number).describe()).raw_description.pending_activities
            started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            return any(activity.activity_type.name == _OBSERVE and activity.state == started for activity in pending)

        await _until(is_observed)

    async def _split(self, number: int) -> float:
        begun = time.monotonic()
        await self._handle(number).execute_update("split", SplitRequest(segment=0))
        return time.monotonic() - begun


async def _measure(stack: Stack, worker: int, options: argparse.Namespace) -> Idle:
    client = await Client.connect(stack.temporal_address, data_converter=DATA_CONVERTER)
    topics = Topics(client, stack, options.topics, options.observed)
    before, begun = rss_bytes([worker]), time.monotonic()
    await topics.begin()
    took = time.monotonic() - begun
    # What came of the last change has been done.
    await asyncio.sleep(options.warm_up)
    events = await topics.events()
    watched = {"worker": [worker], "temporal": _pids(stack, "temporal"), "broker": _pids(stack, "broker")}
    spent = {name: cpu_seconds(tree(pids) if name != "worker" else pids) for name, pids in watched.items()}
    begun = time.monotonic()
    await asyncio.sleep(options.seconds)
    lasted = time.monotonic() - begun
    spent = {
        name: cpu_seconds(tree(pids) if name != "worker" else pids) - spent[name] for name, pids in watched.items()
    }
    grown = await topics.events() - events
    rss = rss_bytes([worker])
    return Idle(
        topics=options.topics,
        observed=min(options.observed, options.topics),
        begin_seconds=took,
        rss_bytes_before=before,
        rss_bytes=rss,
        cpu_seconds=spent["worker"],
        temporal_cpu_seconds=spent["temporal"],
        broker_cpu_seconds=spent["broker"],
        idle_seconds=lasted,
        events=grown,
        split_seconds=await topics.split(),
    )


def _pids(stack: Stack, name: str) -> list[int]:
    return [server.pid for server in stack if server.name.startswith(name) and server.pid]


async def _each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[ResultT]]) -> list[ResultT]:
    """Call a function for each item, several at once."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def limited(item: ItemT) -> ResultT:
        async with turn:
            return await work(item)

    return await asyncio.gather(*map(limited, items))


async def _until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(_TIMEOUT):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.5)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_controller.idle", description=__doc__)
    parser.add_argument("--topics", type=positive, default=1000, help="with a controller (1000)")
    parser.add_argument("--observed", type=positive, default=200, help="with an ordered consumer's session (200)")
    parser.add_argument("--seconds", type=positive, default=60, help="of the idle time that is measured (60)")
    parser.add_argument("--warm-up", type=positive, default=30, help="seconds before the measured time (30)")
    options = parser.parse_args()
    tools = provision()
    ran_on = machine(tools)
    spec = StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=_CLUSTER, temporal=True)
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch, ExitStack() as opening:
        folder = Path(scratch)
        stack = opening.enter_context(Stack(spec, folder / _CLUSTER, tools))
        with PulsarAdmin.open(AdminAccess(timeout=60), stack.admin_urls) as admin:
            create_namespace(admin, _CLUSTER, _NAMESPACE, [])
        serving = serving_worker(stack.temporal_address, folder, PULSAR_MIGRATE_ADMIN_TIMEOUT="PT30S")
        worker = opening.enter_context(serving)
        figures = asyncio.run(_measure(stack, worker.pid, options))
        print(json.dumps({"machine": ran_on, **asdict(figures)}, indent=1))
        for kind, seconds in figures.split_seconds.items():
            tell(f"a split of a topic {kind}: {statistics.median(seconds or [0.0]):.2f} s")


if __name__ == "__main__":
    _main()
