"""Failures of migrations, blockers of their start, and lists of failed items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256

from models.base import Result
from models.text import one_line

NAMED = 100
"""Most items of a list that a result names."""

_SHOWN = 5


def summarize(items: Sequence[object], *, shown: int = _SHOWN, total: int = 0) -> str:
    """Return the first items of a list, and how many more there are.

    Args:
        items: the list, or its first items.
        shown: how many are named.
        total: how many there are, where `items` has only the first.
    """
    more = max(total, len(items)) - len(items[:shown])
    return f"{', '.join(map(str, items[:shown]))}{f' and {more:,} more' if more > 0 else ''}"


class FailureKind(StrEnum):
    """Types of the failures that end a workflow or an activity; part of the public interface."""

    INVALID_INPUT = "InvalidInput"
    PRECHECK_FAILED = "PrecheckFailed"
    VERIFICATION_FAILED = "VerificationFailed"
    CONFLICT = "Conflict"
    CONTENTION = "Contention"
    UNREACHABLE = "Unreachable"
    DENIED = "Denied"
    UNSUPPORTED = "Unsupported"
    NOT_READY = "ParticipantsNotReady"
    DEADLINE = "DeadlineExceeded"
    REFUSED = "Refused"
    NOT_LEADER = "NotTheLeader"
    IN_USE = "SourceInUse"
    NOT_WRITABLE = "RecordNotWritable"
    LEDGER_UNREADABLE = "LedgerUnreadable"
    UNEXPECTED = "Unexpected"


NOTHING_DUE = "NothingDue"
"""Type of the failure that asks Temporal for the next attempt of a poll; operators see it at the pending activity."""


class Blocker(Result):
    """Reason why a migration cannot start, and its cure.

    Attributes:
        code: for programs.
        cause: one sentence.
        cure: what to do about it.
        count: how many blockers it represents; see `first_blockers`.
    """

    code: str
    cause: str
    cure: str
    count: int = 1

    def __str__(self) -> str:
        return one_line(f"[{self.code}] {self.cause.rstrip('.')}. Cure: {self.cure}")


def count_blockers(blockers: Iterable[Blocker]) -> int:
    """Return how many blockers there are, including those that are not named."""
    return sum(blocker.count for blocker in blockers)


def first_blockers(blockers: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """Return the first blockers, and one that counts the others by code.

    A cluster with thousands of namespaces may have as many blockers. Temporal rejects results and failures of that
    size: the step would be retried indefinitely, or the server would terminate the workflow.
    """
    if len(blockers) <= NAMED:
        return (*blockers,)
    others = blockers[NAMED - 1 :]
    codes = Counter[str]()
    for blocker in others:
        codes[blocker.code] += blocker.count
    listed = summarize([f"{code} {count:,}" for code, count in codes.most_common()], shown=NAMED)
    total = codes.total()
    more = Blocker(code="MORE", cause=f"{total:,} more: {listed}", cure="cure the others, and check again", count=total)
    return (*blockers[: NAMED - 1], more)


class FailedItem(Result):
    """An item that could not be migrated.

    Attributes:
        ledger_id: the ledger itself, or the ledger that the item refers to; None without a ledger.
        path: the record, cursor, schema or topic; empty for a ledger.
        reason: one sentence.
    """

    ledger_id: int | None = None
    path: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[int | None, str]:
        """Identity of the item, without the reason."""
        return self.ledger_id, self.path

    def __str__(self) -> str:
        ledger = "" if self.ledger_id is None else f"ledger {self.ledger_id}"
        name = f"{self.path} ({ledger})" if self.path and ledger else self.path or ledger
        return one_line(f"{name}: {self.reason}" if name and self.reason else name or self.reason)


class FailedItems(Result):
    """The items that one activity could not migrate.

    Attributes:
        what: description, read after a number: `ledger(s) cannot be copied`.
        items: at most 100 of them.
        count: number of all items.
        digest: of all items, where `items` has not all of them; else empty.
        listed_in: the node or file that lists all items; empty where `items` has all of them.
    """

    what: str
    items: tuple[FailedItem, ...] = ()
    count: int = 0
    digest: str = ""
    listed_in: str = ""

    @staticmethod
    def of(what: str, failed: Iterable[FailedItem], *, listed_in: str = "") -> FailedItems:
        """Return the items sorted, and cut to the size that results may have.

        Args:
            what: description of the items.
            failed: all items.
            listed_in: the node or file that lists all items, for a list that is too long.
        """
        items = sorted(failed, key=lambda item: (item.ledger_id or 0, item.path))
        if len(items) <= NAMED:
            return FailedItems(what=what, items=tuple(items), count=len(items))
        digest = sha256(repr([item.key for item in items]).encode()).hexdigest()[:16]
        return FailedItems(what=what, items=tuple(items[:NAMED]), count=len(items), digest=digest, listed_in=listed_in)

    def joined(self, other: FailedItems) -> FailedItems:
        """Return both lists as one; items that are not named are counted.

        An item that both lists name counts once. Items that are not named cannot be compared, and count twice.
        """
        items = {item.key: item for item in (*self.items, *other.items)}
        twice = len(self.items) + len(other.items) - len(items)
        whole = FailedItems.of(self.what, items.values(), listed_in=self.listed_in or other.listed_in)
        return whole.model_copy(update={"count": self.count + other.count - twice})

    @property
    def all_named(self) -> bool:
        """True if `items` has all items."""
        return self.count <= len(self.items)

    def lines(self) -> list[str]:
        """Return a line for each named item, and one for the rest."""
        more = self.count - len(self.items)
        where = f", listed in {self.listed_in}" if self.listed_in else ""
        return [*map(str, self.items), *([f"{more:,} more {self.what}{where}"] if more > 0 else [])]


def failed_lines(failures: Iterable[FailedItems]) -> list[str]:
    """Return the lines of all lists, in the order in which they were reported."""
    return [line for failed in failures for line in failed.lines()]
