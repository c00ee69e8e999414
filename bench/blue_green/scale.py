"""How the time and the broker calls of a migration grow with its topics: `python -m bench blue-green --scale 5,10,20`.

Each topic has a subscription and no traffic: what is measured is the migration's own work.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from bench.blue_green.servers import Servers
from bench.lifecycle.measure import MigrationFailed
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import TopicName
from pulsar_devstack.traffic.plan import ConsumerPlan, Language, Subscribed, TopicPlan
from pulsar_devstack.traffic.pulsar_client import send_to

TOPICS = 25
"""Topics of a namespace."""
_FLIPPED_SECONDS = 300.0
# The calls right after a flip are not the steady state.
_WARM_UP_SECONDS = 5.0
_WATCH_SECONDS = 40.0
_DRAIN = "PT60S"
_LOOK_EVERY = 0.5
_COLUMNS = {
    "namespaces": "namespaces",
    "topics": "topics",
    "seconds": "seconds",
    "calls": "broker calls",
    "seconds_per_topic": "seconds a topic",
    "calls_per_topic": "calls a topic",
}


_REQUEST = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}) \[.*\] INFO +JettyRequestLogFactory - HTTP request")


def run(sizes: Sequence[int], servers: Servers, out: Path, machine: Mapping[str, object]) -> str:
    """Move so many namespaces for each size, and watch one that cannot end; returns the table.

    Args:
        sizes: numbers of namespaces.
        servers: both clusters.
        out: where the figures go, JSON.
        machine: what it runs on.
    """
    rows: list[dict[str, float]] = []
    for size in sizes:
        rows.append(_moved(size, servers))
        out.write_text(json.dumps({"machine": dict(machine), "runs": rows}, indent=1) + "\n")
    watch = _watched(servers)
    out.write_text(json.dumps({"machine": dict(machine), "runs": rows, "watch": watch}, indent=1) + "\n")
    return _table(rows, watch)


def _moved(size: int, servers: Servers) -> dict[str, float]:
    """Return seconds and calls of one migration of this many namespaces."""
    tenant = f"scale-{size}"
    namespaces = [f"{tenant}/n{number:03}" for number in range(size)]
    for namespace in namespaces:
        servers.clusters.prepare(namespace, _topics(namespace), on_green=False)
    begin = time.time()
    reported = servers.migrations.run(f"{tenant}/*")
    end = time.time()
    calls = count_calls(servers.broker_logs, begin, end)
    _leave(servers, namespaces)
    topics = size * TOPICS
    return {
        "namespaces": size,
        "topics": topics,
        "seconds": end - begin,
        "calls": calls,
        "seconds_per_topic": (end - begin) / topics,
        "calls_per_topic": calls / topics,
        **reported,
    }


def _watched(servers: Servers) -> dict[str, float]:
    """Return the calls per second while a batch waits for backlogs without consumers."""
    namespace = "scale-watch/one"
    topics = _topics(namespace)
    servers.clusters.prepare(namespace, topics, on_green=False)
    send_to(servers.clusters.blue_url, [plan.topic for plan in topics])
    options = {"drain_timeout": _DRAIN, "waves": {"gate": "none", "when_held": "stop", "canary": 0, "attempts": 1}}
    with ThreadPoolExecutor(1) as pool:
        # It fails, since the backlogs stay.
        ended = pool.submit(_to_its_failure, servers, namespace, options)
        _await_flip(servers, TopicName.parse(topics[-1].topic))
        begin = time.time() + _WARM_UP_SECONDS
        time.sleep(_WARM_UP_SECONDS + _WATCH_SECONDS)
        calls = count_calls(servers.broker_logs, begin, begin + _WATCH_SECONDS)
        ended.result()
    _leave(servers, [namespace])
    each_second = calls / _WATCH_SECONDS
    return {"topics": TOPICS, "calls_per_second": each_second, "calls_per_second_and_topic": each_second / TOPICS}


def _to_its_failure(servers: Servers, namespace: str, options: Mapping[str, object]) -> None:
    with suppress(MigrationFailed):
        servers.migrations.run(namespace, **options)
        raise AssertionError(f"{namespace} was moved with a backlog on blue")


def _await_flip(servers: Servers, topic: TopicName) -> None:
    deadline = time.monotonic() + _FLIPPED_SECONDS
    while time.monotonic() < deadline:
        with suppress(AdminError):
            if servers.clusters.blue.topics.internal_info(topic).migrated:
                return
        time.sleep(_LOOK_EVERY)
    raise TimeoutError(f"{topic} was not flipped in {_FLIPPED_SECONDS:g} s")


def _topics(namespace: str) -> list[TopicPlan]:
    names = [f"persistent://{namespace}/t{number:02}" for number in range(TOPICS)]
    # Each has a subscription whose consumer is never opened.
    return [TopicPlan(name, 0, (), (ConsumerPlan("idle", name, Language.PYTHON, Subscribed.SHARED),)) for name in names]


def _leave(servers: Servers, namespaces: Sequence[str]) -> None:
    """Delete what was moved, so that the next run finds servers as this one did."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(_leave_one, servers), namespaces))


def _leave_one(servers: Servers, namespace: str) -> None:
    with suppress(AdminError):
        servers.clusters.leave(namespace)


def _table(rows: Sequence[dict[str, float]], watch: dict[str, float]) -> str:
    lines = [f"| {' | '.join(_COLUMNS.values())} |", "|" + "---:|" * len(_COLUMNS)]
    lines += [f"| {' | '.join(f'{row[name]:,.5g}' for name in _COLUMNS)} |" for row in rows]
    lines.append("")
    lines.append(
        f"In the steady watch of {watch['topics']:.0f} topics: {watch['calls_per_second']:.1f} calls a second, "
        f"{watch['calls_per_second_and_topic']:.2f} for each topic."
    )
    return "\n".join(lines)


def count_calls(logs: Iterable[Path], begin: float, end: float) -> int:
    """Count the admin requests that brokers logged in a period.

    Args:
        logs: of brokers.
        begin: in seconds since the epoch.
        end: the same.
    """
    return sum(begin <= at <= end for log in logs for at in _times(log))


def _times(log: Path) -> Iterable[float]:
    with log.open(errors="replace") as lines:
        for line in lines:
            if match := _REQUEST.match(line):
                # Brokers write local time.
                yield datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S,%f").astimezone().timestamp()
