"""What the migration to a scalable topic found, measured and proved, and the state that its workflow carries."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.lifecycle.base import Figures
from models.lifecycle.start import Start
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Messages, Seconds
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.results import DrainedTopic, FlippedTopic, Precheck


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


class TopicFigures(Figures):
    """What was measured.

    Attributes:
        blockers: how many a dry run found.
        backlog_messages: of all subscriptions, at PRECHECK.
        stored_bytes: of the regular topic, at PRECHECK.
        drain_seconds: how long old messages took to be consumed.
    """

    blockers: Count | None = None
    backlog_messages: Messages | None = None
    stored_bytes: Bytes | None = None
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


TopicStart = Start[ScalableTopicInput, TopicState]
"""The argument of `ScalableTopicMigration`."""
