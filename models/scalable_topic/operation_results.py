"""What the activities of operations on scalable topics return."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from models.base import Result
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.report import PrecheckResult


class Verdict(StrEnum):
    """What became of one topic.

    CHANGED: it was changed, or would be in a dry run.
    FOUND: something was found that somebody has to see to.
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
        """What became of all; long lists are cut."""
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
