"""The audit trail of a migration: a chain of entries, of which each has the hash of the previous one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from models.base import Result, json_sum
from models.text import short_line

MOST_ENTRIES = 500
"""Number of the last entries that a migration keeps."""


class AuditEntry(Result):
    """A request to a migration.

    Attributes:
        number: of the entry, from 1.
        at: when it came.
        by: who sent it, as the sender names itself: `program:user@machine`.
        what: a verb, or the name of an update.
        reason: the sender's.
        accepted: whether it took effect, or was taken as a request for an approval.
        result: what happened, or why it was refused.
        previous: hash of the previous entry; empty for the first one.
        hash: SHA-256 of all other fields, as compact JSON with sorted keys; hexadecimal.
    """

    number: int
    at: datetime
    by: str
    what: str
    reason: str = ""
    accepted: bool
    result: str
    previous: str = ""
    hash: str = ""

    def digest(self) -> str:
        """Return the hash that the entry must have."""
        return json_sum(self.model_dump(mode="json", exclude={"hash"}))


class Audit(Result):
    """Entries of the audit trail, the oldest first; the first ones of a long trail are not kept."""

    entries: tuple[AuditEntry, ...] = ()

    @property
    def head(self) -> str:
        """Hash of the last entry; empty if there is none."""
        return self.entries[-1].hash if self.entries else ""

    def with_entry(self, at: datetime, by: str, what: str, *, reason: str = "", accepted: bool, result: str) -> Audit:
        """Return the trail with another entry."""
        entry = AuditEntry(
            number=self.entries[-1].number + 1 if self.entries else 1,
            at=at,
            by=short_line(by),
            what=short_line(what),
            reason=short_line(reason),
            accepted=accepted,
            result=short_line(result),
            previous=self.head,
        )
        entry = entry.model_copy(update={"hash": entry.digest()})
        return Audit(entries=(*self.entries, entry)[-MOST_ENTRIES:])


def fault_of(entries: Sequence[AuditEntry]) -> str:
    """Return what is wrong with a chain: which entry was changed, or is missing; empty if nothing is."""
    previous = None
    for entry in entries:
        if entry.hash != entry.digest():
            return f"entry {entry.number} was changed: its hash does not fit"
        if previous is not None and (entry.previous, entry.number) != (previous.hash, previous.number + 1):
            return f"the entry before number {entry.number} is missing, or was changed"
        previous = entry
    return ""
