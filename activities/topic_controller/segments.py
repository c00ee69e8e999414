"""Segments of a controlled topic, each an ordinary stored topic: made, ended, looked at and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic, segment_topic
from clients.errors import RetryableError
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.topics import COMPACTION
from clients.pulsar.names import TopicName
from models.segment import SegmentInfo

# Brokers delete topics that nobody uses, and with them what a later consumer would have got.
_STAYS = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
_KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
_INACTIVE, _RETENTION = "inactiveTopicPolicies", "retention"


def make_segments(task: ControllerTask, segments: Iterable[SegmentInfo], subscriptions: Sequence[str]) -> None:
    """Make segments that stay when nobody uses them, with subscriptions at their begin; harmless when done twice."""
    task.each(segments, lambda one: _make_segment(task, segment_topic(task.name, one.descriptor), subscriptions))


def make_layout_topic(task: ControllerTask) -> None:
    """Make the topic in which the layout is published, and which keeps all of it until it is compacted."""
    _make_topic(task, layout_topic(task.name), {_INACTIVE: _STAYS, _RETENTION: _KEPT})


def require_places(task: ControllerTask, segments: Iterable[SegmentInfo], subscriptions: Sequence[str]) -> None:
    """See that subscriptions have their places on segments, and make those that are missing.

    Raises:
        RetryableError: a broker said that it made one, and has none.
    """

    def heal(segment: SegmentInfo) -> None:
        name = segment_topic(task.name, segment.descriptor)
        if {*subscriptions} <= {*places(task.admin, name)}:
            return
        _make_segment(task, name, subscriptions)
        if left := {*subscriptions} - {*places(task.admin, name)}:
            raise RetryableError(
                f"{', '.join(sorted(left))} have no place on {name} after a broker said that they have"
            )

    task.each(segments, heal)


def end_segment(task: ControllerTask, segment: SegmentInfo) -> None:
    """End a segment: nothing more is stored in it, and all can be read.

    Raises:
        RetryableError: it goes on taking messages.
    """
    name = segment_topic(task.name, segment.descriptor)
    if not is_ended(task.admin, name):
        # A late one would end a segment of a topic that was created anew under the same name.
        task.change_or_never(
            look=lambda admin: admin.topics.internal_stats(name),
            fence=task.require,
            change=lambda admin: admin.topics.terminate(name),
        )
        if not is_ended(task.admin, name):
            raise RetryableError(f"{name} still takes messages, although its broker said that it was terminated")
    # What was on its way in is never answered, and the next message that comes makes the broker refuse all consumers
    # until it has loaded the topic anew (apache/pulsar pull request 26678).
    task.admin.topics.unload(name)


def is_ended(admin: PulsarAdminReader, name: TopicName) -> bool:
    """Whether a segment takes no messages any more.

    Raises:
        AdminNotFound: it is not there.
    """
    return admin.topics.internal_stats(name).terminated


def places(admin: PulsarAdminReader, name: TopicName) -> list[str]:
    """Durable subscriptions of a segment."""
    return [one for one in admin.topics.internal_stats(name).cursors if one != COMPACTION]


def delete_topic(task: ControllerTask, name: TopicName) -> None:
    """Delete one of the topics, also under clients; harmless where it is gone."""

    def delete(admin: PulsarAdmin) -> None:
        with suppress(AdminNotFound):
            admin.topics.delete(name, force=True)

    # A late one would delete a segment of a topic that was created anew under the same name.
    task.change_or_never(look=lambda admin: admin.topics.internal_stats(name), fence=task.require, change=delete)


def _make_segment(task: ControllerTask, name: TopicName, subscriptions: Sequence[str]) -> None:
    _make_topic(task, name, {_INACTIVE: _STAYS})
    there = {*places(task.admin, name)}
    for subscription in subscriptions:
        if subscription not in there:
            with suppress(AdminConflict):
                task.admin.subscriptions.create(name, subscription)


def _make_topic(task: ControllerTask, name: TopicName, policies: dict[str, Any]) -> None:
    with suppress(AdminConflict):
        task.admin.topics.create(name)
    for policy, value in policies.items():
        if task.admin.topic_policies.get(name, policy) != value:
            task.admin.topic_policies.set(name, policy, value)
