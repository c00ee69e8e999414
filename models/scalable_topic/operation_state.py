"""What an operation on scalable topics found, did and measured, and the state that its workflow carries."""

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
    """What became of one topic.

    CHANGED: it was changed, or would be in a dry run.
    FOUND: something was found that somebody must see to.
    UNCHANGED: there was nothing to do, or to find.
    FAILED: it could not be done, or was not found as it should be afterwards.
    """

    CHANGED = "changed"
    FOUND = "found"
    UNCHANGED = "unchanged"
    FAILED = "failed"


class TopicOutcome(Result):
    """What became of one topic.

    Attributes:
        topic: `tenant/namespace/topic`.
        verdict: in a word.
        told: in a sentence, with names.
        registered: subscriptions that have got a record.
        healed: segments that were missing, or lacked a subscription, and are made.
        messages: that were copied.
        seconds: that it took.
    """

    topic: str
    verdict: Verdict
    told: str = ""
    registered: int = 0
    healed: int = 0
    messages: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.topic}: {self.told}"


class OperationOutcome(Result):
    """Result of OPERATE; in a dry run it is what would be done.

    Attributes:
        topics: that were looked at.
        changed, found, unchanged, failed: how many of them, by their verdict.
        outcomes: the first of those that were changed, or of which something was found, in words.
        failures: the first of those that failed.
        registered: subscriptions that have got a record.
        healed: segments that were missing, or lacked a subscription, and are made.
        messages: that were copied.
        longest_seconds: that one topic took.
        told: what was left by earlier runs, and is brought to its end.
    """

    topics: int = 0
    changed: int = 0
    found: int = 0
    unchanged: int = 0
    failed: int = 0
    outcomes: tuple[str, ...] = ()
    failures: tuple[FailedItem, ...] = ()
    registered: int = 0
    healed: int = 0
    messages: int = 0
    longest_seconds: float = 0.0
    told: tuple[str, ...] = ()

    @staticmethod
    def of(each: Iterable[TopicOutcome]) -> OperationOutcome:
        """Return what became of all; long lists are cut."""
        all_ = list(each)
        by = {verdict: [one for one in all_ if one.verdict is verdict] for verdict in Verdict}
        named = [*by[Verdict.CHANGED], *by[Verdict.FOUND]]
        failures = [FailedItem(path=one.topic, reason=one.told) for one in by[Verdict.FAILED][:NAMED]]
        return OperationOutcome(
            topics=len(all_),
            changed=len(by[Verdict.CHANGED]),
            found=len(by[Verdict.FOUND]),
            unchanged=len(by[Verdict.UNCHANGED]),
            failed=len(by[Verdict.FAILED]),
            outcomes=tuple(map(str, named[:NAMED])),
            failures=tuple(failures),
            registered=sum(one.registered for one in all_),
            healed=sum(one.healed for one in all_),
            messages=sum(one.messages for one in all_),
            longest_seconds=max((one.seconds for one in all_), default=0.0),
        )


class OperationCheck(PrecheckResult):
    """Result of PRECHECK.

    Attributes:
        topics: that fit the names and patterns.
        plan: in a dry run, what would be done with them.
    """

    topics: int = 0
    plan: OperationOutcome | None = None


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
