"""Input of the controller of one scalable topic, and what it is asked for (PIP-468)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from models.lifecycle.base import Frozen
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.fields import Bool
from models.segment import SubscriptionKind

KIND = "topic-controller"

MOST_SEGMENTS = 1024
"""Active segments of one topic; each is a topic that brokers load."""

# What names of segments, and paths in every metadata store, take as it is.
_TOPIC = re.compile(r"persistent://[\w.~-]+/[\w.~-]+/[\w.~-]+", re.ASCII)
_PARTITION = re.compile(r"-partition-\d+$")
_SUBSCRIPTION = re.compile(r"[^/;{}%\x00-\x1f\x7f]{1,200}")
_DOTS = (".", "..")


def _controlled(name: str) -> str:
    if not _TOPIC.fullmatch(name) or _PARTITION.search(name):
        raise ValueError(
            f"{name!r} cannot be scalable; write persistent://tenant/namespace/topic with letters, digits and _.-~ only"
        )
    return name


def _subscription(name: str) -> str:
    if not _SUBSCRIPTION.fullmatch(name) or name in _DOTS:
        raise ValueError(f"{name!r} is no name of a subscription here; leave out / ; {{ }} % and control characters")
    return name


ControlledTopic = Annotated[str, AfterValidator(_controlled)]
"""`persistent://tenant/namespace/topic`, the name of the whole; its segments have names that follow from it."""

SubscriptionName = Annotated[str, AfterValidator(_subscription)]
"""The name of a subscription of a scalable topic."""


class ControllerInput(ClusterAccess):
    """Input of `ScalableTopicController`.

    Attributes:
        topic: the scalable topic. It is created where there is none.
        segments: how many it has when it is created.
        properties: notes of users, kept with the layout when it is created.
    """

    topic: ControlledTopic
    segments: int = Field(default=1, ge=1, le=MOST_SEGMENTS)
    properties: dict[str, str] = Field(default_factory=dict[str, str])

    @property
    def workflow_id(self) -> str:
        """One controller for each topic, always (PIP-468, "Leader Election")."""
        return f"scalable-topic/{self.target_name}"

    @property
    def target_name(self) -> str:
        """`tenant/namespace/topic`."""
        return self.topic.partition("://")[2]

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


class SubscriptionRequest(Frozen):
    """Create a subscription, at the begin of each active segment."""

    name: SubscriptionName
    kind: SubscriptionKind = SubscriptionKind.STREAM


class Unsubscription(Frozen):
    """Delete a subscription with its places on all segments."""

    name: SubscriptionName


class Deletion(Frozen):
    """Delete the topic with all that it holds.

    Attributes:
        force: also while clients are connected.
    """

    force: Bool = False
