"""Input of the controller of one scalable topic, and what it is asked for (PIP-468)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from models.addresses import WebUrl
from models.base import Frozen
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.fields import Bool
from models.lifecycle.input import CoveredInput
from models.lifecycle.names import MAX_ID_BYTES
from models.segments.segment import SubscriptionKind
from models.topic_controller.auto_scale import AutoScale
from models.topic_controller.names import is_node_name
from models.topic_controller.pruning import Pruning
from models.topic_names import partition_number

KIND = "topic-controller"

MAX_PROPERTIES_BYTES = 65_536
"""Most bytes of all properties, which are stored with the layout: Temporal and metadata stores limit values to 1 MB."""

MAX_SEGMENTS = 1024
"""Most active segments of a topic; each is a topic that brokers load."""

MAX_URLS = 20
"""Most addresses of a controller's REST interface."""

MAX_SUBSCRIPTIONS = 1000
"""Most subscriptions in a request."""

# Characters that are valid in names of segments, and in paths of every metadata store.
_DOMAIN, _PREFIX = "persistent://", f"{KIND}/"
_TOPIC = re.compile(r"persistent://[\w.~-]+/[\w.~-]+/[\w.~-]+", re.ASCII)
_NOT_IN_SUBSCRIPTIONS = frozenset(";{}%")
# Prefixes of the subscriptions of compaction, deduplication and replication.
_RESERVED = ("__", "pulsar.")


def _check_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(
            f"invalid name {name!r} of a scalable topic; write persistent://tenant/namespace/topic with letters, "
            "digits and _.-~ only"
        )
    return name


def _check_subscription(name: str) -> str:
    if not is_node_name(name) or _NOT_IN_SUBSCRIPTIONS & {*name}:
        raise ValueError(
            f"invalid subscription name {name!r}; leave out / ; {{ }} %, control characters, and characters that "
            "ZooKeeper does not allow, such as emoji"
        )
    if name.startswith(_RESERVED):
        raise ValueError(f"subscription name {name!r} is reserved for brokers; choose another name")
    return name


def _check_size(properties: dict[str, str]) -> dict[str, str]:
    size = sum(len(text.encode()) for pair in properties.items() for text in pair)
    if size > MAX_PROPERTIES_BYTES:
        raise ValueError(
            f"properties have {size:,} bytes; at most {MAX_PROPERTIES_BYTES:,} are allowed, as each record has them"
        )
    return properties


ControlledTopic = Annotated[str, AfterValidator(_check_topic)]
"""`persistent://tenant/namespace/topic`, the name of a scalable topic; names of its segments are derived from it."""

SubscriptionName = Annotated[str, AfterValidator(_check_subscription)]
"""The name of a subscription of a scalable topic."""


Urls = Annotated[tuple[Annotated[WebUrl, Field(max_length=1000)], ...], Field(max_length=MAX_URLS)]
"""Addresses of the controller's REST interface, which each record of the layout has."""


def controller_id(cluster: str, topic: str) -> str:
    """Return the id of the workflow that controls a topic; only one runs at a time (PIP-468, "Leader Election").

    Clusters that share a Temporal namespace may have topics of the same name, so the id contains the cluster.

    Args:
        cluster: `clusterName` of the brokers.
        topic: `persistent://tenant/namespace/topic`, or the same without the domain.

    Raises:
        ValueError: the topic has a name that a scalable topic cannot have, or a name that is too long.
    """
    path = topic.removeprefix(_DOMAIN)
    _check_topic(f"{_DOMAIN}{path}")
    workflow_id = f"{controller_prefix(cluster)}{path}"
    # Not cut: the gateway reads names of topics from the ids of their controllers.
    if len(workflow_id) > MAX_ID_BYTES:  # mutant: topic-controller/ids-that-temporal-refuses
        raise ValueError(
            f"the topic's name has {len(path):,} characters without its domain, and at most "
            f"{MAX_ID_BYTES - len(controller_prefix(cluster))} are allowed, as it is part of a workflow id; choose a "
            "shorter name"
        )
    return workflow_id


def controller_prefix(cluster: str) -> str:
    """Return the prefix of the workflow ids of all controllers of a cluster."""
    return f"{_PREFIX}{cluster}/"


def controlled_topic(workflow_id: str) -> tuple[str, str] | None:
    """Return the cluster and `tenant/namespace/topic` of a controller's workflow id; None for any other text."""
    cluster, slash, path = workflow_id.removeprefix(_PREFIX).partition("/")
    return (cluster, path) if workflow_id.startswith(_PREFIX) and slash else None


def claim_holder(topic: str) -> str:
    """Return the name under which successive controllers of a topic hold its claims.

    It is the workflow id of releases before 0.2, without the cluster, so that ours can replace their controllers.
    """
    return f"scalable-topic/{topic.removeprefix(_DOMAIN)}"


class ControllerInput(ClusterAccess, CoveredInput):
    """Input of `TopicController`; accepted features are checked when the topic is created.

    Attributes:
        topic: the scalable topic; created if it does not exist.
        segments: number of segments of a new topic.
        properties: notes of users, stored with the layout of a new topic.
        controller_urls: where consumers reach the controller's REST interface, stored with the layout of a new topic;
            `set_controller_urls` changes them later.
        pruning: when sealed segments are removed; `null` for never. `set_pruning` changes it later.
        auto_scale: when segments split and merge automatically; `null` for never. `set_auto_scale` changes it later.
    """

    topic: ControlledTopic
    segments: int = Field(default=1, ge=1, le=MAX_SEGMENTS)
    properties: Annotated[dict[str, str], AfterValidator(_check_size)] = Field(default_factory=dict[str, str])
    controller_urls: Urls = ()
    pruning: Pruning | None = Pruning()
    auto_scale: AutoScale | None = None

    @model_validator(mode="after")
    def _has_an_id(self) -> Self:
        controller_id(self.cluster, self.topic)
        return self

    @property
    def workflow_id(self) -> str:
        """Id of the workflow; see `controller_id`."""
        return controller_id(self.cluster, self.topic)

    @property
    def target_name(self) -> str:
        """`tenant/namespace/topic`."""
        return self.topic.removeprefix(_DOMAIN)

    @property
    def summary(self) -> str:
        """Summary for the Web UI, one line."""
        return f"Control the scalable topic {self.target_name} of {self.cluster}"


class SplitRequest(Frozen):
    """Split an active segment in the middle of its hash range."""

    segment: int = Field(ge=0)


class MergeRequest(Frozen):
    """Merge two active neighbours, in any order, into one segment."""

    segments: tuple[int, int]


class InitialPosition(StrEnum):
    """Start of a new subscription: at all messages that the topic still has, sealed segments first, or at new ones."""

    EARLIEST = "EARLIEST"
    LATEST = "LATEST"


class SubscriptionRequest(Frozen):
    """Create a subscription, with a cursor on each segment.

    Attributes:
        name: name of the subscription.
        kind: how it is consumed.
        initial_position: where a new subscription starts; an existing one keeps its cursors.
    """

    name: SubscriptionName
    kind: SubscriptionKind = SubscriptionKind.STREAM
    initial_position: InitialPosition = Field(
        default=InitialPosition.EARLIEST, exclude_if=lambda value: value is InitialPosition.EARLIEST
    )


class Unsubscription(Frozen):
    """Delete a subscription with its cursors on all segments."""

    name: SubscriptionName


class SegmentRequest(Frozen):
    """Create the topic of a segment if it is missing, with cursors of subscriptions (PIP-468, "Create segment topic").

    Attributes:
        segment: id of the segment.
        subscriptions: subscriptions that must have a cursor on it; new cursors are at its start.
    """

    segment: int = Field(ge=0)
    subscriptions: tuple[SubscriptionName, ...] = Field(default=(), max_length=MAX_SUBSCRIPTIONS)


class Deletion(Frozen):
    """Delete the topic with all its messages.

    Attributes:
        force: delete it also while clients are connected.
    """

    force: Bool = False


class ControllerUrls(Frozen):
    """New addresses of the controller's REST interface, for consumers; empty for none."""

    urls: Urls
