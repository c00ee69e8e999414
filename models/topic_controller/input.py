"""Input of the controller of one scalable topic, and what it is asked for (PIP-468)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from models.addresses import AdminUrl
from models.base import Frozen
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.fields import Bool
from models.lifecycle.input import CoveredInput
from models.segments.segment import SubscriptionKind
from models.topic_controller.auto_scale import AutoScale
from models.topic_controller.names import is_node_name
from models.topic_controller.pruning import Pruning
from models.topic_names import partition_number

KIND = "topic-controller"

MAX_PROPERTIES_BYTES = 65_536
"""Bytes of all properties; Temporal and metadata stores take a megabyte at a time, and the layout comes with them."""

MAX_SEGMENTS = 1024
"""Active segments of one topic; each is a topic that brokers load."""

MAX_SUBSCRIPTIONS = 1000
"""Subscriptions of one request."""

# What names of segments, and paths in every metadata store, take as it is.
_DOMAIN, _PREFIX = "persistent://", f"{KIND}/"
_TOPIC = re.compile(r"persistent://[\w.~-]+/[\w.~-]+/[\w.~-]+", re.ASCII)
_NOT_IN_SUBSCRIPTIONS = frozenset(";{}%")
# Of compaction, deduplication and replication, and of what they may come to be called.
_RESERVED = ("__", "pulsar.")


def _controlled(name: str) -> str:
    if not _TOPIC.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(
            f"{name!r} cannot be scalable; write persistent://tenant/namespace/topic with letters, digits and _.-~ only"
        )
    return name


def _subscription(name: str) -> str:
    if not is_node_name(name) or _NOT_IN_SUBSCRIPTIONS & {*name}:
        raise ValueError(
            f"{name!r} is no name of a subscription here; leave out / ; {{ }} %, control characters, and what "
            "ZooKeeper takes in no name, such as emoji"
        )
    if name.startswith(_RESERVED):
        raise ValueError(f"{name!r} is a name that brokers use themselves; take another one")
    return name


def _short(properties: dict[str, str]) -> dict[str, str]:
    size = sum(len(text.encode()) for pair in properties.items() for text in pair)
    if size > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties have {size:,} bytes, and {MAX_PROPERTIES_BYTES:,} is most: each record has them")
    return properties


ControlledTopic = Annotated[str, AfterValidator(_controlled)]
"""`persistent://tenant/namespace/topic`, the name of the whole; its segments have names that follow from it."""

SubscriptionName = Annotated[str, AfterValidator(_subscription)]
"""The name of a subscription of a scalable topic."""


def controller_id(cluster: str, topic: str) -> str:
    """Return the id of the workflow that controls a topic: one for each, always (PIP-468, "Leader Election").

    Clusters that share a Temporal namespace have topics of the same name, so the id names the cluster.

    Args:
        cluster: `clusterName` of the brokers.
        topic: `persistent://tenant/namespace/topic`, or the same without the domain.

    Raises:
        ValueError: this cannot be a scalable topic.
    """
    path = topic.removeprefix(_DOMAIN)
    _controlled(f"{_DOMAIN}{path}")
    return f"{controllers_of(cluster)}{path}"


def controllers_of(cluster: str) -> str:
    """Return what the ids of all controllers of a cluster start with."""
    return f"{_PREFIX}{cluster}/"


def controlled_topic(workflow_id: str) -> tuple[str, str] | None:
    """Return the cluster and `tenant/namespace/topic` of a controller's workflow id; None for another text."""
    cluster, slash, path = workflow_id.removeprefix(_PREFIX).partition("/")
    return (cluster, path) if workflow_id.startswith(_PREFIX) and slash else None


def claim_holder(topic: str) -> str:
    """Return the name under which the controllers of a topic hold its claims, one after the other.

    It is the workflow id of releases before 0.2, which had no cluster: their controllers are succeeded by ours.
    """
    return f"scalable-topic/{topic.removeprefix(_DOMAIN)}"


class ControllerInput(ClusterAccess, CoveredInput):
    """Input of `ScalableTopicController`; what it accepts counts when the topic is created.

    Attributes:
        topic: the scalable topic. It is created where there is none.
        segments: how many it has when it is created.
        properties: notes of users, kept with the layout when it is created.
        controller_urls: where consumers reach the controller's REST interface, kept with the layout when it is created;
            `set_controller_urls` changes them later.
        pruning: when sealed segments go; `null` for never. `set_pruning` changes it later.
        auto_scale: when segments split and merge by themselves; `null` for never. `set_auto_scale` changes it later.
    """

    topic: ControlledTopic
    segments: int = Field(default=1, ge=1, le=MAX_SEGMENTS)
    properties: Annotated[dict[str, str], AfterValidator(_short)] = Field(default_factory=dict[str, str])
    controller_urls: tuple[AdminUrl, ...] = ()
    pruning: Pruning | None = Pruning()
    auto_scale: AutoScale | None = None

    @property
    def workflow_id(self) -> str:
        """Return the id; see `controller_id`."""
        return controller_id(self.cluster, self.topic)

    @property
    def target_name(self) -> str:
        """`tenant/namespace/topic`."""
        return self.topic.removeprefix(_DOMAIN)

    @property
    def summary(self) -> str:
        """One line for the Web UI."""
        return f"Control the scalable topic {self.target_name} of {self.cluster}"


class SplitRequest(Frozen):
    """Divide an active segment in the middle of its hashes."""

    segment: int = Field(ge=0)


class MergeRequest(Frozen):
    """Make one segment of two active neighbours, in any order."""

    segments: tuple[int, int]


class InitialPosition(StrEnum):
    """Where a new subscription starts: with all that the topic still has, sealed segments first, or with what comes."""

    EARLIEST = "EARLIEST"
    LATEST = "LATEST"


class SubscriptionRequest(Frozen):
    """Create a subscription, with a cursor on each segment.

    Attributes:
        name: of the subscription.
        kind: how it is consumed.
        initial_position: where a new one starts; one that is there keeps its cursors.
    """

    name: SubscriptionName
    kind: SubscriptionKind = SubscriptionKind.STREAM
    initial_position: InitialPosition = Field(
        default=InitialPosition.EARLIEST, exclude_if=lambda value: value is InitialPosition.EARLIEST
    )


class Unsubscription(Frozen):
    """Delete a subscription with its places on all segments."""

    name: SubscriptionName


class SegmentRequest(Frozen):
    """See that a segment has its topic, with places of subscriptions (PIP-468, "Create segment topic").

    Attributes:
        segment: its id.
        subscriptions: that must have a place on it; a new one is at its begin.
    """

    segment: int = Field(ge=0)
    subscriptions: tuple[SubscriptionName, ...] = Field(default=(), max_length=MAX_SUBSCRIPTIONS)


class Deletion(Frozen):
    """Delete the topic with all that it holds.

    Attributes:
        force: also while clients are connected.
    """

    force: Bool = False


class ControllerUrls(Frozen):
    """Where consumers reach the controller's REST interface from now on; none for nowhere."""

    urls: tuple[AdminUrl, ...]
