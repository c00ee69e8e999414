"""One run of one side: topics become scalable under traffic, and the audit of their messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from bench.lifecycle.results import Side, delivery_figures
from bench.scalable_topic.results import TopicFlip, TopicRun
from bench.scalable_topic.servers import Servers
from bench.scalable_topic.subject import PARALLEL
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.audit import DeliveryAudit
from pulsar_devstack.traffic.layout_watch import LayoutWatch
from pulsar_devstack.traffic.plan import Subscribed
from pulsar_devstack.traffic.scalable_plan import RETURNS, STAYS, WAITS, ScalableTopicPlan
from pulsar_devstack.traffic.scalable_traffic import ScalableTraffic

# Some seconds of what a producer sends.
_MESSAGES = 40
_FLOW_SECONDS = 60.0
_BACK_SECONDS = 90.0
# Brokers look for old segments every 60 s, and the last consumer comes 75 s after the flip.
_PEER_SECONDS = 150.0
_DELIVERY_SECONDS = 45.0
_SUBSCRIPTIONS = (STAYS, RETURNS, WAITS, Subscribed.EXCLUSIVE.value, Subscribed.FAILOVER.value)


_LOOK_SECONDS = 60.0


def measure(
    side: Side, topics: Sequence[ScalableTopicPlan], servers: Servers, folder: Path, tools: Toolchain
) -> TopicRun:
    """Return the figures of one side.

    Args:
        side: who makes topics scalable.
        topics: of one namespace, which are created.
        servers: the cluster.
        folder: an empty folder for the clients' logs.
        tools: Java and the jars, with those of V5.
    """
    namespace = TopicName.parse(topics[0].topic).namespace_path
    servers.create(namespace, topics)

    with (
        LayoutWatch(servers.store, servers.admin, topics) as watch,
        ScalableTraffic(servers.stack.broker_url, servers.admin, topics, folder, tools) as traffic,
    ):
        traffic.wait_for_more(_MESSAGES)
        traffic.step_aside()
        begin = time.time()
        flips = _make_scalable(side, servers, namespace, topics)
        seconds = time.time() - begin
        merged = watch.merged
        absent = _resume_clients(side, traffic, begin + seconds)
        audit = traffic.stop(_DELIVERY_SECONDS)
        watch.scan()
        figures = {
            "seconds": seconds,
            **_figures(audit),
            "pruned": watch.pruned,
            "pruned_unread": watch.pruned_unread,
            # Ours answers for its own time: then policies are again what their owner has set.
            "merged": merged if side is Side.OURS else watch.merged,
            "absent_consumers": len(absent),
        }
    faults = (*audit.faults(), *(f"{name} never came: {why}" for name, why in absent.items()))
    return TopicRun(side, figures, faults, tuple(flips))


def _make_scalable(
    side: Side, servers: Servers, namespace: str, topics: Sequence[ScalableTopicPlan]
) -> list[TopicFlip]:
    names = [plan.topic for plan in topics]
    if side is Side.OURS:
        flips, _ = servers.migrations.run(namespace, names)
        return flips
    return migrate_bare(servers.admin, servers.stack.admin_urls[0], names)


def _resume_clients(side: Side, traffic: ScalableTraffic, done: float) -> dict[str, str]:
    """Resume clients; return those that did not connect, and why."""
    absent = traffic.wait_until_all_are_back(_BACK_SECONDS)
    if side is Side.PEER:
        time.sleep(max(done + _PEER_SECONDS - time.time(), 0))
    traffic.flows(_MESSAGES, _FLOW_SECONDS)
    return absent


def _figures(audit: DeliveryAudit) -> dict[str, float]:
    lost: dict[str, int] = dict.fromkeys(_SUBSCRIPTIONS, 0)
    for subscription in audit.subscriptions:
        lost[subscription.name] += subscription.lost
    return {
        **delivery_figures(audit),
        **{f"lost_{name.lower()}": count for name, count in lost.items()},
        "longest_send_seconds": audit.longest_send,
    }


def migrate_bare(admin: PulsarAdmin, admin_url: str, topics: Sequence[str]) -> list[TopicFlip]:
    """Make topics scalable by the brokers' command alone, and look at the statistics of each once.

    That look has a broker take charge of the topic, and collect its old segments from then on.

    Args:
        admin: of the brokers.
        admin_url: of the broker whose statistics are asked for.
        topics: their regular names.
    """

    def migrate(topic: str) -> TopicFlip:
        begin = time.monotonic()
        admin.scalable_topics.migrate(TopicName.parse(topic))
        seconds = time.monotonic() - begin
        return TopicFlip(topic, call_seconds=seconds, work_seconds=seconds, flip_seconds=seconds)

    with ThreadPoolExecutor(PARALLEL) as pool:
        flips = list(pool.map(migrate, topics))
    with httpx.Client(timeout=_LOOK_SECONDS) as operator:
        for topic in topics:
            path = TopicName.parse(topic).local_path
            operator.get(f"{admin_url}/admin/v2/scalable/{path}/stats").raise_for_status()
    return flips
