"""What an operation on scalable topics found, measured and proved, and the state that its workflow carries."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.base import Figures
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Count, Messages, Seconds, Topics
from models.scalable_topic.operation_results import OperationCheck, OperationOutcome


class OperationFacts(Figures):
    """What was found out.

    Attributes:
        precheck: the result of PRECHECK; in a dry run with the plan.
        outcome: the result of OPERATE.
    """

    precheck: OperationCheck | None = None
    outcome: OperationOutcome | None = None


class OperationFigures(Figures):
    """What was measured.

    Attributes:
        blockers: how many a dry run found.
        topics: that were looked at.
        changed_topics, found_topics, failed_topics: those that were changed, of which something was found, or that
            failed.
        registered: subscriptions that have got a record.
        healed: segments that were missing, or lacked a subscription, and are made.
        messages: that were copied.
        longest_seconds: that one topic took.
    """

    blockers: Count | None = None
    topics: Topics | None = None
    changed_topics: Topics | None = None
    found_topics: Topics | None = None
    failed_topics: Topics | None = None
    registered: Count | None = None
    healed: Count | None = None
    messages: Messages | None = None
    longest_seconds: Seconds | None = None


class OperationCertificate(Figures):
    """What was done and found, topic by topic.

    Attributes:
        operation: what was done.
        outcomes: the first 100 topics that were changed, or of which something was found, in words.
        not_named: how many more of these there are.
        completed_at: when the cluster was given back.
    """

    operation: str | None = None
    outcomes: list[str] | None = None
    not_named: Topics | None = None
    completed_at: datetime | None = None


class OperationState(MigrationState[OperationFacts, OperationFigures, OperationCertificate]):
    """The state of an operation."""

    facts: OperationFacts = Field(default_factory=OperationFacts)
    figures: OperationFigures = Field(default_factory=OperationFigures)
    certificate: OperationCertificate = Field(default_factory=OperationCertificate)
