"""Why migrations fail, and why they cannot start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256

from models.base import Result

NAMED = 100
"""How many items of a long list a result names."""

_SHOWN = 5


def some(items: Sequence[object], *, shown: int = _SHOWN, total: int = 0) -> str:
    """Return a list as a line shows it.

    Args:
        items: the list, or its begin.
        shown: how many of them are named.
        total: how many there are, where the list does not hold all.
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


class Blocker(Result):
    """Why a migration cannot start, and what to do about it.

    Attributes:
        code: says for programs what it is.
        cause: in a sentence.
        cure: what to do about it.
        count: how many blockers it stands for; see `first_blockers`.
    """

    code: str
    cause: str
    cure: str
    count: int = 1

    def __str__(self) -> str:
        return f"[{self.code}] {self.cause.rstrip('.')}. Cure: {self.cure}"


def count_blockers(blockers: Iterable[Blocker]) -> int:
    """Return how many there are, with those that are not named."""
    return sum(blocker.count for blocker in blockers)


def first_blockers(blockers: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """Return blockers as results carry them: the first ones, and one that counts the others by their codes.

    A cluster with thousands of namespaces may have as many blockers, and Temporal takes no answer and no failure of
    that size: the step would be tried indefinitely, or the workflow be terminated by the server.
    """
    if len(blockers) <= NAMED:
        return (*blockers,)
    others = blockers[NAMED - 1 :]
    codes = Counter[str]()
    for blocker in others:
        codes[blocker.code] += blocker.count
    listed = some([f"{code} {count:,}" for code, count in codes.most_common()], shown=NAMED)
    total = codes.total()
    more = Blocker(code="MORE", cause=f"{total:,} more: {listed}", cure="cure the others, and check again", count=total)
    return (*blockers[: NAMED - 1], more)


class FailedItem(Result):
    """One thing that could not be migrated.

    Attributes:
        ledger_id: the ledger that it is, or that it refers to; None where no ledger is concerned.
        path: the record, cursor, schema or topic that it is; empty where it is the ledger itself.
        reason: why, in a sentence.
    """

    ledger_id: int | None = None
    path: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[int | None, str]:
        """What it is, which stays the same when the reason differs."""
        return self.ledger_id, self.path

    def __str__(self) -> str:
        ledger = "" if self.ledger_id is None else f"ledger {self.ledger_id}"
        name = f"{self.path} ({ledger})" if self.path and ledger else self.path or ledger
        return f"{name}: {self.reason}" if name and self.reason else name or self.reason


class FailedItems(Result):
    """What one activity could not migrate.

    Attributes:
        what: what these are, to be read after a number: `ledger(s) cannot be copied`.
        items: some of them, at most 100.
        count: how many there are in all.
        digest: tells two lists apart that are too long to be named; empty where all are named.
        listed_in: the node or file that lists all of them; empty where all are named.
    """

    what: str
    items: tuple[FailedItem, ...] = ()
    count: int = 0
    digest: str = ""
    listed_in: str = ""

    @staticmethod
    def of(what: str, found: Iterable[FailedItem], *, listed_in: str = "") -> FailedItems:
        """A list as results carry it: sorted, and named as far as results may hold it.

        Args:
            what: what these are.
            found: all of them.
            listed_in: the node or file that lists all of them, for a list that is too long to be named.
        """
        items = sorted(found, key=lambda item: (item.ledger_id or 0, item.path))
        if len(items) <= NAMED:
            return FailedItems(what=what, items=tuple(items), count=len(items))
        digest = sha256(repr([item.key for item in items]).encode()).hexdigest()[:16]
        return FailedItems(what=what, items=tuple(items[:NAMED]), count=len(items), digest=digest, listed_in=listed_in)

    def joined(self, other: FailedItems) -> FailedItems:
        """Return this list with the items of another one, which are counted also where they are not named.

        An item that both name counts once; of those that are not named, nobody knows which are the same.
        """
        items = {item.key: item for item in (*self.items, *other.items)}
        twice = len(self.items) + len(other.items) - len(items)
        whole = FailedItems.of(self.what, items.values(), listed_in=self.listed_in or other.listed_in)
        return whole.model_copy(update={"count": self.count + other.count - twice})

    @property
    def all_named(self) -> bool:
        """Whether `items` holds all of them."""
        return self.count <= len(self.items)

    def lines(self) -> list[str]:
        """As people read them: one line each, and one for what is not named."""
        more = self.count - len(self.items)
        where = f", listed in {self.listed_in}" if self.listed_in else ""
        return [*map(str, self.items), *([f"{more:,} more {self.what}{where}"] if more > 0 else [])]


def failed_lines(failures: Iterable[FailedItems]) -> list[str]:
    """All lists in the order in which they were reported, as people read them."""
    return [line for failed in failures for line in failed.lines()]
