"""Results, figures and workflow state of an operation on scalable topics."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from models.base import Figures, Result
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.report import PrecheckResult
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Count, Messages, Seconds, Topics


class Verdict(StrEnum):
    """Result of an operation for one topic, in a word.

    CHANGED: the topic was changed; in a dry run, it would be.
    FOUND: a finding needs the operator.
    UNCHANGED: there was nothing to do and no finding.
    FAILED: the operation failed, or its result is not as expected.
    """

    CHANGED = "changed"
    FOUND = "found"
    UNCHANGED = "unchanged"
    FAILED = "failed"


class TopicOutcome(Result):
    """Result of an operation for one topic.

    Attributes:
        topic: `tenant/namespace/topic`.
        verdict: the result in a word.
        description: the result in a sentence.
        registered: number of subscriptions that got a record.
        healed: number of segments that were created, or got a missing cursor.
        messages: number of copied messages.
        seconds: duration.
    """

    topic: str
    verdict: Verdict
    description: str = ""
    registered: int = 0
    healed: int = 0
    messages: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.topic}: {self.description}"


class OperationOutcome(Result):
    """Result of OPERATE; in a dry run, the plan.

    Attributes:
        topics: number of checked topics.
        changed, with_findings, unchanged, failed: number of topics by verdict.
        outcomes: descriptions of the first changed topics and of those with findings.
        failures: the first failed topics.
        registered: number of subscriptions that got a record.
        healed: number of segments that were created, or got a missing cursor.
        messages: number of copied messages.
        longest_seconds: duration of the slowest topic.
        notes: work of interrupted runs that is completed.
    """

    topics: int = 0
    changed: int = 0
    with_findings: int = 0
    unchanged: int = 0
    failed: int = 0
    outcomes: tuple[str, ...] = ()
    failures: tuple[FailedItem, ...] = ()
    registered: int = 0
    healed: int = 0
    messages: int = 0
    longest_seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(outcomes: Iterable[TopicOutcome]) -> OperationOutcome:
        """Return the sum of the outcomes of topics; long lists are cut."""
        all_ = list(outcomes)
        by = {verdict: [outcome for outcome in all_ if outcome.verdict is verdict] for verdict in Verdict}
        named = [*by[Verdict.CHANGED], *by[Verdict.FOUND]]
        failures = [
            FailedItem(path=outcome.topic, reason=outcome.description) for outcome in by[Verdict.FAILED][:NAMED]
        ]
        return OperationOutcome(
            topics=len(all_),
            changed=len(by[Verdict.CHANGED]),
            with_findings=len(by[Verdict.FOUND]),
            unchanged=len(by[Verdict.UNCHANGED]),
            failed=len(by[Verdict.FAILED]),
            outcomes=tuple(map(str, named[:NAMED])),
            failures=tuple(failures),
            registered=sum(outcome.registered for outcome in all_),
            healed=sum(outcome.healed for outcome in all_),
            messages=sum(outcome.messages for outcome in all_),
            longest_seconds=max((outcome.seconds for outcome in all_), default=0.0),
        )


class OperationCheck(PrecheckResult):
    """Result of PRECHECK.

    Attributes:
        topics: number of topics that match the names and patterns.
        plan: what would be done; in a dry run only.
    """

    topics: int = 0
    plan: OperationOutcome | None = None


class OperationFacts(Figures):
    """Results of the phases.

    Attributes:
        precheck: the result of PRECHECK; in a dry run with the plan.
        outcome: the result of OPERATE.
    """

    precheck: OperationCheck | None = None
    outcome: OperationOutcome | None = None


class OperationFigures(Figures):
    """Measurements of the operation.

    Attributes:
        blockers: number of blockers that a dry run found.
        topics: number of checked topics.
        changed_topics, found_topics, failed_topics: number of topics that were changed, have findings, or failed.
        registered: number of subscriptions that got a record.
        healed: number of segments that were created, or got a missing cursor.
        messages: number of copied messages.
        longest_seconds: duration of the slowest topic.
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
    """Record of what was done and found, by topic.

    Attributes:
        operation: its name.
        outcomes: descriptions of the first 100 changed topics and of those with findings.
        not_named: number of such topics beyond these.
        completed_at: when the cluster was released.
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
