"""Loads and consumers of a topic's active segments, weighed by its policy; reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfoNotFoundError

from activities.lifecycle.polling import PollResult
from activities.lifecycle.step import polling_step
from activities.topic_controller.context import ObserverTask
from activities.topic_controller.names import layout_topic, segment_topic
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.topic_controller.auto_scale import Load
from models.topic_controller.scale_decision import Decision, LoadSnapshot, ScaleWatch, decide


@polling_step(ObserverTask)
def await_scale(task: ObserverTask, watch: ScaleWatch) -> PollResult[Decision]:
    """Check whether a split or a merge is due; the memory says since when segments have little load, by id.

    Args:
        task: an attempt that looks.
        watch: what is looked at.

    Raises:
        StoreConflict: a time zone is not known here.
        AdminError: a broker does not say.
    """
    name, admin = task.name, task.admin
    stats = task.each(watch.segments, lambda one: admin.topics.stats(segment_topic(name, one.descriptor)))
    subscriptions = {name for stat in stats for name in stat.durable_subscriptions}
    seen = LoadSnapshot(
        loads={one.segment_id: _load(found) for one, found in zip(watch.segments, stats, strict=True)},
        consumers=_consumers(admin, layout_topic(name), subscriptions),
        low_since=_remembered(task.context.memory),
        now=datetime.now(UTC),
    )
    try:
        verdict = decide(watch, seen)
    except ZoneInfoNotFoundError as error:
        raise StoreConflict(f"the worker's machine does not know a time zone: {error}") from error
    return PollResult(
        answer=verdict.decision,
        why=verdict.why,
        again=timedelta(seconds=watch.policy.interval_seconds),
        memory=verdict.low_since,
    )


def _load(stats: TopicStats) -> Load:
    return Load(stats.msg_rate_in, stats.msg_throughput_in, stats.msg_rate_out, stats.msg_throughput_out)


def _consumers(admin: PulsarAdminReader, layout: TopicName, subscriptions: Collection[str]) -> int:
    """Return the most consumers that an ordered subscription has; see `observe` for how they are known.

    Tools and people may read the layout too, under names with a slash: those of no subscription of the segments are not
    counted.
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
    return {int(number): since for number, since in cast("dict[str, int]", memory or {}).items()}
