"""Subscriptions of topics: names, cursors, and requests that move them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clients.pulsar.admin.answers import NAMES, STRINGS
from clients.pulsar.admin.http import Endpoint, ReadEndpoint
from clients.pulsar.admin.topics import EARLIEST, CursorStats, Position, TopicsReader
from clients.pulsar.names import TopicName, encoded_twice


class SubscriptionsReader:
    """Subscriptions; of a partitioned topic, those of its partitions."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def names(self, topic: TopicName) -> list[str]:
        """Return the subscriptions of a topic.

        Raises:
            AdminNotFound: there is no such topic.
        """
        return self._endpoint.get_as(NAMES, f"/{topic.rest_path}/subscriptions")

    def cursor(self, topic: TopicName, name: str) -> CursorStats | None:
        """Return the cursor of a subscription of a topic or partition; None if there is none. Loads the topic."""
        return TopicsReader(self._endpoint).internal_stats(topic).cursors.get(name)

    def properties(self, topic: TopicName, name: str) -> dict[str, str]:
        """Return the properties of a subscription."""
        return self._endpoint.get_as(STRINGS, f"{_path(topic, name)}/properties")


class Subscriptions(SubscriptionsReader):
    """Subscriptions, and what changes them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def create(
        self,
        topic: TopicName,
        name: str,
        position: Position = EARLIEST,
        *,
        replicated: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a subscription, of a partitioned topic on each partition.

        Args:
            topic: whose.
            name: of the subscription.
            position: the message after which it begins, `EARLIEST` or `LATEST`.
            replicated: whether its position is carried to other clusters.
            properties: notes of users.

        Raises:
            AdminConflict: it exists, or the topic of this partition has no partitions.
            AdminServerError: among others for a moment after the topic was created.
        """
        body: dict[str, Any] = {**position.body(), "partitionIndex": -1, "properties": dict(properties or {})}
        self._calls.put(_path(topic, name), body, {"replicated": replicated})

    def delete(self, topic: TopicName, name: str, *, force: bool = False) -> None:
        """Delete a subscription; with `force` also one with consumers.

        Raises:
            AdminPreconditionFailed: it has consumers.
        """
        self._calls.delete(_path(topic, name), {"force": force})

    def skip(self, topic: TopicName, name: str, messages: int) -> None:
        """Acknowledge the next messages of a subscription of a topic without partitions."""
        self._calls.post(f"{_path(topic, name)}/skip/{messages}")

    def skip_all(self, topic: TopicName, name: str) -> None:
        """Acknowledge all messages that are there."""
        self._calls.post(f"{_path(topic, name)}/skip_all")

    def reset_to(self, topic: TopicName, name: str, position: Position) -> None:
        """Move a subscription of a topic without partitions to a message, which comes next, or to an end."""
        self._calls.post(f"{_path(topic, name)}/resetcursor", {**position.body(), "partitionIndex": -1})

    def set_properties(self, topic: TopicName, name: str, properties: Mapping[str, str]) -> None:
        """Replace what users have noted."""
        self._calls.put(f"{_path(topic, name)}/properties", dict(properties))

    def set_replicated(self, topic: TopicName, name: str, *, replicated: bool) -> None:
        """Set whether its position is replicated to other clusters."""
        self._calls.post(f"{_path(topic, name)}/replicatedSubscriptionStatus", replicated)


def _path(topic: TopicName, name: str) -> str:
    return f"/{topic.rest_path}/subscription/{encoded_twice(name)}"
