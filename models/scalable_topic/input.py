"""Input of the migration of a regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from models.lifecycle.claim import ParentRun
from models.lifecycle.cluster import ClusterAccess
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import NO_CLEANUP, MigrationInput, SourceCleanup
from models.scalable_topic.auto_scale import AutoScale
from models.topic_names import partition_number

KIND = "scalable-topic"

_TOPIC = re.compile(r"persistent://[^/]+/[^/]+/.+")


def whole_topic(name: str) -> str:
    """Return a name that is one of a whole stored topic.

    Raises:
        ValueError: it is another.
    """
    if not _TOPIC.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(f"{name!r} is not a whole stored topic; write persistent://tenant/namespace/topic")
    return name


WholeTopic = Annotated[str, AfterValidator(whole_topic)]
"""`persistent://tenant/namespace/topic`, and no partition of one."""


class ClusterInput(ClusterAccess, MigrationInput):
    """What all inputs of migrations and operations on scalable topics share."""

    @property
    def kind(self) -> str:
        """Return the same for a topic, many topics and operations: their servers need the same."""
        return "scalable-topic"


class TopicOptions(ClusterInput):
    """How topics become scalable, one or many.

    Attributes:
        force: do not wait for clients that cannot follow, nor for ordered subscriptions with a backlog.
        replace_empty: remove a scalable topic that has the name of the regular one, and to which nothing was ever sent.
        client_timeout: how long is waited for them, for each topic; then it stays regular.
        drain_timeout: how long old messages of a topic may take to be consumed, while policies are held.
        auto_scale: the policy that the scalable topic gets; none leaves it to namespace and brokers, which merge
            segments with little traffic.
        grace_window: how long old topics are kept after COMPLETE.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with old topics.
        cleanup_at_window_end: clean up when the window ends, without being told.
    """

    force: Bool = False
    replace_empty: Bool = False
    client_timeout: Duration = Field(default=timedelta(days=1), ge=timedelta(0), le=timedelta(days=90))
    drain_timeout: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=30))
    auto_scale: AutoScale | None = None
    grace_window: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    cleanup: SourceCleanup = SourceCleanup.LEAVE
    cleanup_at_window_end: Bool = False

    @model_validator(mode="after")
    def _cleanup_fits(self) -> Self:
        if self.cleanup_at_window_end and self.cleanup is SourceCleanup.LEAVE:
            raise ValueError(NO_CLEANUP)
        return self


def cleans_up(input: ClusterInput) -> bool:
    """Whether regular topics must be deleted after all; otherwise they stay, and layouts continue naming them."""
    return isinstance(input, TopicOptions) and input.cleanup is SourceCleanup.REMOVE


class ScalableTopicInput(TopicOptions):
    """Input of `ScalableTopicMigration`.

    Attributes:
        hold_before_cutover: wait for `proceed` before the topic becomes scalable, since there is no way back then.
        topic: `persistent://tenant/namespace/topic`, a whole one.
        parent: the migration of many topics that this one belongs to, set by that one; it holds claim and policies.
    """

    hold_before_cutover: Bool = True
    topic: WholeTopic
    parent: ParentRun | None = None

    @property
    def workflow_id(self) -> str:
        """One migration for each topic: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}/{self.topic.removeprefix('persistent://')}"

    @property
    def target_name(self) -> str:
        """The topic."""
        return self.topic

    @property
    def summary(self) -> str:
        """What becomes scalable."""
        return f"{self.topic} of {self.cluster} becomes scalable{' (dry run)' if self.dry_run else ''}"
