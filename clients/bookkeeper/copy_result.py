"""What came of copying or comparing one ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """How a ledger stands in the target.

    `copied`: written and closed, and, where that was asked for, read back and found equal.
    `equal`: stood there already, was compared in full, and has the same bytes.
    `refused`: bookies of the target have deleted a ledger of this id, and take no other before their restart. The copy
        stands open: bookies that start while it does take it.
    `too large`: bookies of the target take no entry of such a size; nothing is left of the copy.
    `different`: another ledger stands there under the same id; it was not touched.
    `unreadable`: an entry, or the ledger's end, cannot be read at the source (or, when comparing, at the target). If
        that may pass, the copy stands open: its id is written again with the next try.
    `not recovered`: it is open at the source, and could not be closed there, which says nothing of its entries.
    `deleted`: it was deleted at the source meanwhile.
    `open`: it is not closed at the source; what is confirmed was copied, or nothing.
    """

    COPIED = "copied"
    EQUAL = "equal"
    REFUSED = "refused"
    TOO_LARGE = "too large"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    NOT_RECOVERED = "not recovered"
    DELETED = "deleted"
    OPEN = "open"


class Begun(NamedTuple):
    """How far the open copy of a ledger has come that is, or was, open at the source.

    Attributes:
        through: the last entry that was copied, acknowledged by each replica, and compared.
        length: bytes of the data of all entries up to it.
        mzxid: zxid of the copy's znode. With another one the copy lies on other bookies, and is begun again.
    """

    through: int
    length: int
    mzxid: int


class CopyOutcome(NamedTuple):
    """What came of one ledger.

    Attributes:
        ledger_id: which.
        verdict: how it stands in the target.
        entries: entries written, or compared where nothing was written.
        bytes: of their header, digest and data, each entry counted once.
        detail: why, where the verdict is a failure; else empty.
        mzxid: zxid of the last change of the target's metadata when both sides were compared; 0 if they were not.
        begun: how far an open copy has come; None if nothing is known of it.
        transient: bookies did not answer, or refuse the ledger for now, which may pass.
    """

    ledger_id: int
    verdict: Verdict
    entries: int = 0
    bytes: int = 0
    detail: str = ""
    mzxid: int = 0
    transient: bool = False
    begun: Begun | None = None

    @property
    def good(self) -> bool:
        """Whether the target holds the ledger."""
        return self.verdict in (Verdict.COPIED, Verdict.EQUAL)

    @property
    def failed(self) -> bool:
        """Whether the ledger needs a person's decision."""
        return self.verdict in (
            Verdict.REFUSED,
            Verdict.TOO_LARGE,
            Verdict.DIFFERENT,
            Verdict.UNREADABLE,
            Verdict.NOT_RECOVERED,
        )
