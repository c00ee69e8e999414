"""One flip: ten topics with traffic are sent from blue to green, and the audit of their messages."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from bench.blue_green.servers import Servers
from bench.lifecycle.results import Run, Side, delivery_figures
from clients.pulsar.admin.errors import AdminError
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import mixed_topics
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import flip_bare

# Two seconds of what a producer sends.
_MESSAGES = 100
_MOVE_SECONDS = 60.0
_SETTLE_SECONDS = 30.0


def measure(side: Side, number: int, servers: Servers, folder: Path, tools: Toolchain) -> Run:
    """The figures of one flip.

    Args:
        side: who flips.
        number: of the flip.
        servers: both clusters.
        folder: an empty folder for the clients' logs.
        tools: Java and the jars.
    """
    namespace = f"bench/{side.value}-{number}"
    topics = mixed_topics(namespace)
    clusters = servers.clusters
    # Our migration provisions green itself.
    clusters.prepare(namespace, topics, on_green=side is Side.PEER)
    with Traffic.in_programs(clusters.blue_url, topics, folder, tools) as traffic:
        traffic.wait_for_more(_MESSAGES)
        at = time.time()
        own = _flip(side, servers, namespace)
        flipped = time.time()
        # Twice: who followed sends on green then, and who received there has got some of it.
        moved = traffic.flows(_MESSAGES, _MOVE_SECONDS) and traffic.flows(_MESSAGES, _MOVE_SECONDS)
        audit = traffic.stop(_SETTLE_SECONDS)
    longest = {"longest_send_seconds": audit.longest_send, "longest_gap_seconds": audit.longest_gap}
    figures = {"seconds": flipped - at, "moved": float(moved), **delivery_figures(audit), **longest, **own}
    with suppress(AdminError):
        clusters.leave(namespace)
    figures["stuck_brokers"] = float(servers.recovered())
    return Run(side, figures, tuple(audit.faults()))


def _flip(side: Side, servers: Servers, namespace: str) -> dict[str, float]:
    if side is Side.OURS:
        return servers.migrations.run(namespace)
    flip_bare(servers.clusters, namespace)
    return {}
