"""Input of the migration of a regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from models.field_texts import INTERNAL
from models.lifecycle.claim import ParentRun
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import CleanupInput, MigrationInput
from models.lifecycle.names import bounded_id
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.phases import Phase
from models.topic_names import partition_number

KIND = "scalable-topic"

_TOPIC = re.compile(r"persistent://[^/]+/[^/]+/.+")


def whole_topic(name: str) -> str:
    """Return the name if it is the full name of a persistent topic without a partition.

    Raises:
        ValueError: it is not.
    """
    if not _TOPIC.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(
            f"{name!r} is not the full name of a persistent topic; expected persistent://tenant/namespace/topic"
        )
    return name


WholeTopic = Annotated[str, AfterValidator(whole_topic)]
"""Full name of a persistent topic, not of a partition: `persistent://tenant/namespace/topic`."""


class ClusterInput(ClusterAccess, MigrationInput):
    """Common input of migrations to scalable topics and of operations on them."""

    @property
    def kind(self) -> str:
        """Return the kind whose server requirements apply; topics, namespaces and operations share them."""
        return "scalable-topic"


class TopicOptions(CleanupInput, ClusterInput):
    """Options of migrations to scalable topics, of one topic or many.

    Attributes:
        force: do not wait for clients that cannot use scalable topics, nor for ordered subscriptions with a backlog.
        replace_empty: remove a scalable topic of the same name if no message was ever sent to it.
        client_timeout: how long each topic waits for them; after that the topic stays regular.
        drain_timeout: how long consumers may take to consume old messages while policies are overridden.
        auto_scale: the policy of the scalable topic. Without one, the policies of namespace and brokers apply; by
            default these merge segments with little traffic.
        grace_window: how long old topics are kept after COMPLETE.
        cleanup: what happens to old topics on `cleanup`, or at the end of the window with `cleanup_at_window_end`.
        cleanup_at_window_end: clean up when the grace window ends, without the `cleanup` signal.
    """

    force: Bool = False
    replace_empty: Bool = False
    client_timeout: Duration = Field(default=timedelta(days=1), ge=timedelta(0), le=timedelta(days=90))
    drain_timeout: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=30))
    auto_scale: AutoScale | None = None
    grace_window: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))


class ScalableTopicInput(TopicOptions):
    """Input of `ScalableTopicMigration`.

    Attributes:
        topic: `persistent://tenant/namespace/topic`, not a partition.
        parent: the namespace migration that started this one; it holds the claim and the policies.
        until: `GUARD` for a rehearsal: wait for clients, lock the topic, override the policies of its namespace, and
            undo that. The migration ends as `rehearsed`.
    """

    topic: WholeTopic
    until: Literal[Phase.GUARD] | None = None
    parent: Annotated[ParentRun | None, INTERNAL] = None

    @property
    def workflow_id(self) -> str:
        """ID of the only migration of this topic: the server refuses a second start."""
        return bounded_id(f"{KIND}/{self.cluster}/{self.topic.removeprefix('persistent://')}")

    @property
    def target_name(self) -> str:
        """Name of the topic."""
        return self.topic

    @property
    def summary(self) -> str:
        """One-line description of the migration."""
        return f"{self.topic} of {self.cluster} becomes scalable{' (dry run)' if self.dry_run else ''}"
