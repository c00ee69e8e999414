"""Scalable topics: layouts, subscriptions, splits, merges, and the migration of regular topics (PIP-468 and 475).

Paths are those of the released brokers, which differ from the proposals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, cast
from uuid import uuid4

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from clients.pulsar.admin.answers import NAMES, Answer
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.names import TopicName, encoded, encoded_namespace
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind

# The first scalable topic of a cluster took a broker half a minute (seen).
_CREATION = 60.0
# V5 clients attach to segments as `name-seg-N`.
_OF_SEGMENT = re.compile(r"-seg-\d+$")


class AutoScalePolicy(Answer):
    """When brokers split, merge and rebucket segments on their own (PIP-483); what is None is as the level above says.

    Fields that are not named here, thresholds among them, are kept, compared and written back as they are.

    Attributes:
        enabled: whether they do.
        min_segments, max_segments: active ones.
        max_dag_depth: merges in a segment's lineage.
        split_cooldown_seconds, merge_cooldown_seconds, merge_window_seconds: pauses.
    """

    model_config = ConfigDict(extra="allow")

    enabled: bool | None = None
    min_segments: int | None = None
    max_segments: int | None = None
    max_dag_depth: int | None = None
    split_cooldown_seconds: int | None = None
    merge_cooldown_seconds: int | None = None
    merge_window_seconds: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        # Brokers write what is not set as null.
        if not isinstance(value, Mapping):
            return value
        return {name: field for name, field in cast("Mapping[str, object]", value).items() if field is not None}


def _whole_name(name: object) -> object:
    return _OF_SEGMENT.sub("", name) if isinstance(name, str) else name or ""


class SegmentClient(Answer):
    """A producer or a consumer of a segment.

    Attributes:
        name: as the application, or its library, calls it; the part of it for the segment, `-seg-N`, is left out.
    """

    name: Annotated[str, BeforeValidator(_whole_name)] = Field(
        default="", validation_alias=AliasChoices("producerName", "consumerName")
    )


class SegmentSubscription(Answer):
    """A subscription on one segment.

    Attributes:
        msg_backlog: messages that it has not acknowledged.
        consumers: that are connected.
    """

    msg_backlog: int = 0
    consumers: tuple[SegmentClient, ...] = ()


class SegmentStats(Answer):
    """Statistics of one segment, from the broker that owns it.

    Attributes:
        storage_size: bytes that are stored.
        producers: that are connected.
        subscriptions: by name.
    """

    storage_size: int = 0
    producers: tuple[SegmentClient, ...] = ()
    subscriptions: dict[str, SegmentSubscription] = Field(default_factory=dict[str, SegmentSubscription])

    @property
    def clients(self) -> list[str]:
        """Return the connected clients, in words."""
        consumers = [
            f"consumer {consumer.name} of {subscription}"
            for subscription, stats in self.subscriptions.items()
            for consumer in stats.consumers
        ]
        return [*(f"producer {producer.name}" for producer in self.producers), *consumers]


_LAYOUT = TypeAdapter(SegmentLayout)
_STATS = TypeAdapter(SegmentStats)
_POLICY = TypeAdapter(AutoScalePolicy)
_COUNT = TypeAdapter(int)


class ScalableTopicsReader:
    """Reads scalable topics. Topics are named without their domain, or with any."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self, namespace: str) -> list[str]:
        """Return `topic://tenant/namespace/topic` of all in a namespace."""
        return self._endpoint.get_as(NAMES, f"/scalable/{encoded_namespace(namespace)}")

    def layout(self, topic: TopicName) -> SegmentLayout:
        """Return the layout as the broker that answers knows it; it learns of a change of the store a moment later.

        Raises:
            AdminNotFound: the topic is not scalable.
        """
        return self._endpoint.get_as(_LAYOUT, _path(topic))

    def segment_stats(self, topic: TopicName, segment_id: int) -> SegmentStats:
        """Return the statistics of one segment; unlike those of the topic, they make no broker its controller.

        Args:
            topic: the scalable one.
            segment_id: of the segment.

        Raises:
            AdminNotFound: there is no such segment.
        """
        return self._endpoint.get_as(_STATS, f"{_path(topic)}/segments/{segment_id}/stats")

    def auto_scale_policy(self, topic: TopicName) -> AutoScalePolicy | None:
        """Return the topic's own policy; None if it has none."""
        return self._endpoint.set_as(_POLICY, f"{_path(topic)}/autoScalePolicy")

    def backlog(self, topic: TopicName, descriptor: str, subscription: str) -> int:
        """Return entries of one segment that a subscription has not acknowledged.

        Args:
            topic: the scalable one.
            descriptor: of the segment.
            subscription: its name.

        Raises:
            AdminNotFound: the segment is not loaded, or has no such subscription.
        """
        return self._endpoint.get_as(
            _COUNT, f"{_segment(topic, descriptor)}/subscription/{encoded(subscription)}/backlog"
        )


class ScalableTopics(ScalableTopicsReader):
    """Scalable topics, with the calls that change them. An answer proves nothing: read the layout again."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(self, topic: TopicName, segments: int = 1, properties: Mapping[str, str] | None = None) -> None:
        """Create a scalable topic of equal segments.

        Raises:
            AdminConflict: it exists.
        """
        self._calls.put(_path(topic), dict(properties or {}), {"numInitialSegments": segments}, timeout=_CREATION)

    def migrate(self, topic: TopicName, *, force: bool = False) -> None:
        """Make a regular topic scalable, permanently (PIP-475); with `force` also under clients that cannot follow.

        Raises:
            AdminConflict: it is scalable, or such clients are attached.
            AdminNotFound: there is no such topic.
        """
        self._calls.post(f"{_path(topic)}/migrate", params={"force": force}, timeout=_CREATION)

    def require_rights(self, namespace: str) -> None:
        """Raise unless the caller may migrate topics of a namespace, and make and delete their segments.

        Asks to migrate a topic name that does not exist, and for the backlog of a segment of it. Brokers check rights
        before they look for the topic, and then answer that it is not there (5.0.1).

        Args:
            namespace: `tenant/namespace`.

        Raises:
            AdminDenied: it may not.
        """
        name = TopicName.parse(f"persistent://{namespace}/{uuid4().hex}")
        with suppress(AdminNotFound, AdminConflict):
            self.backlog(name, "0000-ffff-0", name.topic)
        with suppress(AdminNotFound, AdminConflict):
            self.migrate(name)

    def require_policy(self, namespace: str, policy: AutoScalePolicy) -> None:
        """Raise unless the broker would take a policy for a topic of a namespace; nothing is changed.

        Asks to set it for a topic name that does not exist. A broker checks the values, with those of the namespace and
        of its own settings, before it looks for the topic, and then answers that it is not there (5.0.1).

        Args:
            namespace: `tenant/namespace`.
            policy: of a topic.

        Raises:
            AdminPreconditionFailed: its values contradict each other, or those of the namespace or of the broker.
        """
        with suppress(AdminNotFound):
            self.set_auto_scale_policy(TopicName.parse(f"persistent://{namespace}/{uuid4().hex}"), policy)

    def delete(self, topic: TopicName, *, force: bool = False) -> None:
        """Delete a topic with its segments; what was a regular topic stays in its own topics."""
        self._calls.delete(_path(topic), {"force": force})

    def register(self, topic: TopicName, subscription: str, kind: SubscriptionKind) -> None:
        """Record a subscription, with cursors at the start of all active segments; harmless when done twice.

        What has no record loses its place in splits, merges and migrations (seen).
        """
        self._calls.put(f"{_path(topic)}/subscriptions/{encoded(subscription)}", params={"type": kind.value})

    def split(self, topic: TopicName, segment_id: int) -> None:
        """Divide an active segment in the middle.

        Raises:
            AdminServerError: also where the segment is sealed, or there is no such one.
        """
        self._calls.post(f"{_path(topic)}/split/{segment_id}")

    def merge(self, topic: TopicName, one_id: int, other_id: int) -> None:
        """Make one segment of two active neighbours.

        Raises:
            AdminServerError: also where they are sealed, absent or not neighbours.
        """
        self._calls.post(f"{_path(topic)}/merge/{one_id}/{other_id}")

    def rebucket(self, topic: TopicName, segment_id: int, buckets: int) -> None:
        """Replace an active segment by one of the same hashes with other entry buckets (PIP-486).

        Args:
            topic: the scalable one.
            segment_id: of the segment.
            buckets: how many entry buckets the new segment gets.

        Raises:
            AdminPreconditionFailed: it is not there or not active, has so many already, or may not have so many.
        """
        self._calls.post(f"{_path(topic)}/rebucket/{segment_id}", params={"bucketCount": buckets})

    def set_auto_scale_policy(self, topic: TopicName, policy: AutoScalePolicy) -> None:
        """Set the topic's own policy.

        Raises:
            AdminPreconditionFailed: its values contradict each other.
        """
        self._calls.post(f"{_path(topic)}/autoScalePolicy", policy.body())

    def remove_auto_scale_policy(self, topic: TopicName) -> None:
        """Leave it to the namespace and the brokers."""
        self._calls.delete(f"{_path(topic)}/autoScalePolicy")

    def create_segment(self, topic: TopicName, descriptor: str, subscriptions: Sequence[str]) -> None:
        """Create the topic of a segment where it is missing, with cursors at its begin; harmless when done twice."""
        self._calls.put(_segment(topic, descriptor), list(subscriptions))

    def delete_segment(self, topic: TopicName, descriptor: str) -> None:
        """Delete the topic of a segment with its messages and clients; harmless where there is none."""
        self._calls.delete(_segment(topic, descriptor), {"force": True})

    def terminate_segment(self, topic: TopicName, descriptor: str) -> None:
        """Terminate a segment, so that it takes no more messages; harmless when done twice.

        Raises:
            AdminNotFound: there is no such segment.
        """
        self._calls.post(f"{_segment(topic, descriptor)}/terminate")


def _path(topic: TopicName) -> str:
    return f"/scalable/{topic.local_path}"


def _segment(topic: TopicName, descriptor: str) -> str:
    return f"/segments/{topic.local_path}/{encoded(descriptor)}"
