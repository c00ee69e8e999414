"""Reads loads and consumers of a topic's active segments, and applies its auto-scale policy; read-only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from activities.lifecycle.polling import PollResult
from activities.lifecycle.step import polling_step
from activities.topic_controller.context import ObserverTask
from activities.topic_controller.names import layout_topic, segment_topic
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.topic_controller.auto_scale import Load
from models.topic_controller.scale_decision import Decision, LoadSnapshot, ScaleWatch, decide


@polling_step(ObserverTask)
def await_scale(task: ObserverTask, watch: ScaleWatch) -> PollResult[Decision]:
    """Check whether a split or a merge is due; its memory says since when segments have little load, by id.

    Args:
        task: an attempt that only reads.
        watch: policy and segments.

    Raises:
        AdminError: a broker does not answer.
    """
    name, admin = task.name, task.admin
    stats = task.each(watch.segments, lambda segment: admin.topics.stats(segment_topic(name, segment.descriptor)))
    subscriptions = {name for stat in stats for name in stat.durable_subscriptions}
    seen = LoadSnapshot(
        loads={
            segment.segment_id: _load(segment_stats)
            for segment, segment_stats in zip(watch.segments, stats, strict=True)
        },
        consumers=_consumers(admin, layout_topic(name), subscriptions),
        low_since=_remembered(task.context.memory),
        now=datetime.now(UTC),
    )
    verdict = decide(watch, seen)
    return PollResult(
        answer=verdict.decision,
        why=verdict.why,
        again=timedelta(seconds=watch.policy.interval_seconds),
        memory=verdict.low_since,
    )


def _load(stats: TopicStats) -> Load:
    return Load(stats.msg_rate_in, stats.msg_throughput_in, stats.msg_rate_out, stats.msg_throughput_out)


def _consumers(admin: PulsarAdminReader, layout: TopicName, subscriptions: Collection[str]) -> int:
    """Return the number of consumers of the ordered subscription that has most; see `observe` how they are found.

    Other readers of the layout may have a slash in their name too, so only subscriptions of the segments count.
    """
    try:
        stats = admin.topics.stats(layout)
    except AdminNotFound:
        return 0
    readers = {
        client.consumer_name for subscription in stats.subscriptions.values() for client in subscription.consumers
    }
    counted = Counter(name.rpartition("/")[0] for name in readers)
    return max((count for name, count in counted.items() if name in subscriptions), default=0)


def _remembered(memory: Any) -> Mapping[int, int]:
    return {int(segment_id): since for segment_id, since in cast("dict[str, int]", memory or {}).items()}
