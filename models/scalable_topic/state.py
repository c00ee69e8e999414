"""Results, figures, certificates and workflow state of the migrations to scalable topics."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.base import Figures
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Messages, Seconds, Topics
from models.lifecycle.waves import WaveState
from models.scalable_topic.results import DrainedTopic, FlippedTopic, Precheck, Survey


class TopicFacts(Figures):
    """Results of the phases.

    Attributes:
        precheck: the result of PRECHECK; the plan.
        flipped: the result of FLIP.
        drained: the result of DRAIN.
    """

    precheck: Precheck | None = None
    flipped: FlippedTopic | None = None
    drained: DrainedTopic | None = None


class CleanupFigures(Figures):
    """Measurements of a cleanup.

    Attributes:
        deleted_topics: number of deleted regular topics; a partitioned one counts once.
    """

    deleted_topics: Topics | None = None


class TopicFigures(CleanupFigures):
    """Measurements of the migration.

    Attributes:
        blockers: number of blockers that a dry run found.
        backlog_messages: of all subscriptions, at PRECHECK.
        stored_bytes: of the regular topic, at PRECHECK.
        migrate_seconds: duration of the brokers' own call.
        flip_seconds: duration of that call and of the steps that complete it.
        drain_seconds: how long consumers took to consume old messages.
    """

    blockers: Count | None = None
    backlog_messages: Messages | None = None
    stored_bytes: Bytes | None = None
    migrate_seconds: Seconds | None = None
    flip_seconds: Seconds | None = None
    drain_seconds: Seconds | None = None


class TopicCertificate(Figures):
    """Proof of the result.

    Attributes:
        migrated_from: the regular topic (PIP-475), and `partitions`, their number; 0 for an unpartitioned one.
        segments: number of segments that take new messages.
        subscriptions: number of subscriptions with a record and a cursor on each of these segments.
        undrained: number of old messages at the end of DRAIN, by subscription.
        faults: descriptions of what is wrong.
        completed_at: when the policies of the namespace were restored.
    """

    migrated_from: str | None = None
    partitions: Count | None = None
    segments: Count | None = None
    subscriptions: Count | None = None
    undrained: dict[str, int] | None = None
    faults: list[str] | None = None
    completed_at: datetime | None = None


class TopicState(MigrationState[TopicFacts, TopicFigures, TopicCertificate]):
    """The state of the migration of one topic."""

    facts: TopicFacts = Field(default_factory=TopicFacts)
    figures: TopicFigures = Field(default_factory=TopicFigures)
    certificate: TopicCertificate = Field(default_factory=TopicCertificate)


class NamespaceFacts(Figures):
    """Results of the phases.

    Attributes:
        survey: the result of PRECHECK; the plan.
    """

    survey: Survey | None = None


class NamespaceFigures(CleanupFigures):
    """Measurements of the migration.

    Attributes:
        blockers: number of blockers that a dry run found.
        topics_scalable: number of migrated topics; `topics_failed` counts those that stayed regular or have faults.
        backlog_messages: of all subscriptions, at PRECHECK.
        stored_bytes: of all regular topics, at PRECHECK; the minimum that stays stored while policies are overridden.
        held_seconds: how long policies were overridden.
        longest_flip_seconds: of a topic, from the brokers' call until it was complete.
        longest_drain_seconds: of a topic, until old messages were consumed.
    """

    blockers: Count | None = None
    topics_scalable: Topics | None = None
    topics_failed: Topics | None = None
    backlog_messages: Messages | None = None
    stored_bytes: Bytes | None = None
    held_seconds: Seconds | None = None
    longest_flip_seconds: Seconds | None = None
    longest_drain_seconds: Seconds | None = None


class NamespaceCertificate(Figures):
    """Proof of the result.

    Attributes:
        segments: number of segments that take new messages, of all topics.
        subscriptions: number of subscriptions with a record and a cursor on each of these segments.
        undrained: number of topics with old messages at the end of DRAIN.
        faults: number of faults of layouts, records and cursors.
        completed_at: when the policies of all namespaces were restored.
    """

    segments: Count | None = None
    subscriptions: Count | None = None
    undrained: Topics | None = None
    faults: Count | None = None
    completed_at: datetime | None = None


class NamespaceState(MigrationState[NamespaceFacts, NamespaceFigures, NamespaceCertificate]):
    """The state of the migration of many topics.

    Attributes:
        waves: progress by waves.
    """

    facts: NamespaceFacts = Field(default_factory=NamespaceFacts)
    figures: NamespaceFigures = Field(default_factory=NamespaceFigures)
    certificate: NamespaceCertificate = Field(default_factory=NamespaceCertificate)
    waves: WaveState
