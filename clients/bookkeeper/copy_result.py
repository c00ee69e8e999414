"""What came of copying or comparing one ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """How a ledger stands in the target.

    `copied`: written and closed, and, where that was asked for, read back and found equal.
    `equal`: stood there already, was compared in full, and has the same bytes.
    `different`: another ledger stands there under the same id; it was not touched.
    `unreadable`: an entry, or the ledger's end, cannot be read at the source (or, when comparing, at the target).
    `deleted`: it was deleted at the source meanwhile.
    `open`: it is not closed at the source; nothing was done.
    """

    COPIED = "copied"
    EQUAL = "equal"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    DELETED = "deleted"
    OPEN = "open"


class CopyOutcome(NamedTuple):
    """What came of one ledger.

    Attributes:
        ledger_id: which.
        verdict: how it stands in the target.
        entries: entries written, or compared where nothing was written.
        bytes: of their header, digest and data, each entry counted once.
        detail: why, where the verdict is a failure; else empty.
        mzxid: zxid of the last change of the target's metadata when both sides were compared; 0 if they were not.
        transient: too few bookies of the source answered, which may pass.
    """

    ledger_id: int
    verdict: Verdict
    entries: int = 0
    bytes: int = 0
    detail: str = ""
    mzxid: int = 0
    transient: bool = False

    @property
    def good(self) -> bool:
        """Whether the target holds the ledger."""
        return self.verdict in (Verdict.COPIED, Verdict.EQUAL)

    @property
    def failed(self) -> bool:
        """Whether the ledger needs a person's decision."""
        return self.verdict in (Verdict.DIFFERENT, Verdict.UNREADABLE)
