"""What the migration to a scalable topic found, measured and proved, and the state that its workflow carries."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.base import Figures
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Messages, Seconds, Topics
from models.lifecycle.waves import WaveState
from models.scalable_topic.results import DrainedTopic, FlippedTopic, Precheck, Survey


class TopicFacts(Figures):
    """What was found out.

    Attributes:
        precheck: the result of PRECHECK; the plan.
        flipped: the result of FLIP.
        drained: the result of DRAIN.
    """

    precheck: Precheck | None = None
    flipped: FlippedTopic | None = None
    drained: DrainedTopic | None = None


class CleanupFigures(Figures):
    """What was measured of a cleanup.

    Attributes:
        deleted_topics: regular topics that are gone; a partitioned one counts once.
    """

    deleted_topics: Topics | None = None


class TopicFigures(CleanupFigures):
    """What was measured.

    Attributes:
        blockers: how many a dry run found.
        backlog_messages: of all subscriptions, at PRECHECK.
        stored_bytes: of the regular topic, at PRECHECK.
        migrate_seconds: of the brokers' own call.
        flip_seconds: of that call with all that completes it.
        drain_seconds: how long old messages took to be consumed.
    """

    blockers: Count | None = None
    backlog_messages: Messages | None = None
    stored_bytes: Bytes | None = None
    migrate_seconds: Seconds | None = None
    flip_seconds: Seconds | None = None
    drain_seconds: Seconds | None = None


class TopicCertificate(Figures):
    """What was compared, and what came of it.

    Attributes:
        migrated_from: the regular topic (PIP-475), and `partitions`, how many it had; 0 for none.
        segments: that take new messages.
        subscriptions: with a record and a cursor on each of these segments.
        undrained: subscriptions with old messages when DRAIN ended.
        faults: what was wrong, in words.
        completed_at: when the policies of the namespace were put back.
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
    """What was found out.

    Attributes:
        survey: the result of PRECHECK; the plan.
    """

    survey: Survey | None = None


class NamespaceFigures(CleanupFigures):
    """What was measured.

    Attributes:
        blockers: how many a dry run found.
        topics_scalable: that this migration has made scalable, and `topics_failed`, those that stayed, or have faults.
        backlog_messages: of all subscriptions, at PRECHECK.
        stored_bytes: of all regular topics, at PRECHECK; so much at least is kept while policies are held.
        held_seconds: how long policies were held.
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
    """What was compared, and what came of it.

    Attributes:
        segments: that take new messages, of all topics.
        subscriptions: with a record and a cursor on each of these segments.
        undrained: topics with old messages when their DRAIN ended.
        faults: of layouts, records and cursors.
        completed_at: when the policies of all namespaces were put back.
    """

    segments: Count | None = None
    subscriptions: Count | None = None
    undrained: Topics | None = None
    faults: Count | None = None
    completed_at: datetime | None = None


class NamespaceState(MigrationState[NamespaceFacts, NamespaceFigures, NamespaceCertificate]):
    """The state of the migration of many topics.

    Attributes:
        waves: how far the topics are.
    """

    facts: NamespaceFacts = Field(default_factory=NamespaceFacts)
    figures: NamespaceFigures = Field(default_factory=NamespaceFigures)
    certificate: NamespaceCertificate = Field(default_factory=NamespaceCertificate)
    waves: WaveState
