"""Input of the migration of many regular topics to scalable ones, in waves (PIP-475)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from models.lifecycle.fields import Duration
from models.lifecycle.patterns import matches
from models.lifecycle.waves import WavePolicy
from models.scalable_topic.input import TopicOptions

KIND = "scalable-namespace"

TopicPattern = Annotated[str, Field(pattern=r"^[^/]+/[^/]+/.+$")]


class ScalableNamespaceInput(TopicOptions):
    """Input of `ScalableNamespaceMigration`.

    Attributes:
        topics: patterns of `tenant/namespace/topic`, in the order in which they become scalable; `*` matches any
            part of a name.
        exclude: patterns of topics that stay regular.
        waves: canary, sizes, gates, error budget and change windows. One child workflow migrates one topic.
        client_timeout: how long each topic waits for its clients; during the wait it occupies a slot of its wave.
        hold_limit: how long policies may be overridden in total; after that no further topic starts.
    """

    client_timeout: Duration = Field(default=timedelta(hours=1), ge=timedelta(0), le=timedelta(days=90))
    topics: tuple[TopicPattern, ...] = Field(min_length=1)
    exclude: tuple[TopicPattern, ...] = ()
    waves: WavePolicy = WavePolicy()
    hold_limit: Duration = Field(default=timedelta(days=7), gt=timedelta(0), le=timedelta(days=90))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.waves.batch_size != 1:
            raise ValueError("waves.batch_size must be 1: each topic has its own workflow")
        longest = self.client_timeout + self.drain_timeout
        if self.waves.deadline <= longest:
            raise ValueError(
                f"waves.deadline, {self.waves.deadline}, is not longer than client_timeout and drain_timeout together, "
                f"{longest}; a topic would be given up while it waits"
            )
        return self

    @property
    def workflow_id(self) -> str:
        """ID of the only such migration of the cluster."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """Patterns of the topics."""
        return ", ".join(self.topics)

    @property
    def summary(self) -> str:
        """One-line description of the migration."""
        return f"{self.target_name} of {self.cluster} become scalable{' (dry run)' if self.dry_run else ''}"

    def rank(self, topic: str) -> int | None:
        """Return the index of the first pattern that matches a topic; None for a topic that stays regular.

        Args:
            topic: `tenant/namespace/topic`.
        """
        if topic.startswith("pulsar/") or any(matches(topic, pattern) for pattern in self.exclude):
            return None
        return next((rank for rank, pattern in enumerate(self.topics) if matches(topic, pattern)), None)
