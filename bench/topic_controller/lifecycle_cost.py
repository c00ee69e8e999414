"""A long life of one controller: thousands of registrations and hundreds of splits and merges, wave after wave.

`python -m bench.topic_controller.lifecycle_cost` starts its own servers. It shows whether the last wave is as fast as
the first one, and whether histories stay small.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from temporalio.client import Client

from bench.lifecycle.machine import positive, tell
from bench.lifecycle.results import Side
from bench.topic_controller.joins import Wave, at_once, connections
from bench.topic_controller.servers import CLUSTER, NAMESPACE, Servers
from bench.topic_controller.topics import ORDERED, Topic
from models.topic_controller.input import controller_id
from pulsar_devstack.servers.provision import provision
from temporal.converter import DATA_CONVERTER

_TOPIC, _SEGMENTS = f"persistent://{NAMESPACE}/life", 4


@dataclass(frozen=True)
class Period:
    """One wave: consumers join, segments are split and merged under their sessions, and the consumers leave.

    Attributes:
        join, leave: of all of them.
        change_median_seconds, change_longest_seconds: of a split or a merge, from the request to its answer.
    """

    join: Wave
    change_median_seconds: float
    change_longest_seconds: float
    leave: Wave


@dataclass(frozen=True)
class Life:
    """Waves, and the histories that Temporal keeps.

    Attributes:
        periods: the waves.
        runs: of the workflow: it continues as new.
        longest_history: events of the longest run.
        largest_history: bytes of the largest one.
    """

    periods: list[Period]
    runs: int
    longest_history: int
    largest_history: int


def measure(servers: Servers, waves: int, consumers: int, changes: int) -> Life:
    """Measure one controller during this many waves of consumers and changes."""
    topic = Topic.create(Side.OURS, servers.admin(Side.OURS), _TOPIC, _SEGMENTS)
    return asyncio.run(_measure(servers, topic, waves, consumers, changes))


async def _measure(servers: Servers, topic: Topic, waves: int, consumers: int, changes: int) -> Life:
    periods: list[Period] = []
    async with connections(servers.gateway) as client:
        for wave in range(waves):
            periods.append(await _period(client, topic, wave, consumers, changes))
            tell(f"wave {wave}: {asdict(periods[-1])}")
    return await _life(servers.stack.temporal_address, periods)


async def _period(client: httpx.AsyncClient, topic: Topic, wave: int, consumers: int, changes: int) -> Period:
    base = f"/admin/v2/scalable/{topic.name.local_path}/subscriptions/{ORDERED}/consumers"
    names = [f"{base}/wave-{wave}-consumer-{number}" for number in range(consumers)]
    dice, took = random.Random(wave), list[float]()
    join = await at_once(client, "POST", names)
    for number in range(changes):
        _, ask = await asyncio.to_thread(topic.plan, number, dice)
        begin = time.monotonic()
        await asyncio.to_thread(ask)
        took.append(time.monotonic() - begin)
    leave = await at_once(client, "DELETE", names)
    return Period(join, statistics.median(took), max(took), leave)


async def _life(temporal: str, periods: list[Period]) -> Life:
    client = await Client.connect(temporal, data_converter=DATA_CONVERTER)
    runs = [workflow async for workflow in client.list_workflows(f"WorkflowId = '{controller_id(CLUSTER, _TOPIC)}'")]
    descriptions = [await client.get_workflow_handle(run.id, run_id=run.run_id).describe() for run in runs]
    sizes = [description.raw_description.workflow_execution_info.history_size_bytes for description in descriptions]
    return Life(periods, len(descriptions), max(description.history_length for description in descriptions), max(sizes))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_controller.lifecycle_cost", description=__doc__)
    parser.add_argument("--waves", type=positive, default=10, help="how often (10)")
    parser.add_argument("--consumers", type=positive, default=1000, help="that join in each wave (1000)")
    parser.add_argument("--changes", type=positive, default=20, help="splits and merges in each wave (20)")
    options = parser.parse_args()
    tools = provision()
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-migrate-bench-") as scratch,
        Servers(Path(scratch), tools) as servers,
    ):
        figures = measure(servers, options.waves, options.consumers, options.changes)
    print(json.dumps(asdict(figures), indent=1))


if __name__ == "__main__":
    _main()
