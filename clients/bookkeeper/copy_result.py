"""Results of copying or comparing one ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """State of a ledger in the target.

    `copied`: written and closed, and, if that was requested, read back and equal.
    `equal`: existed already, was compared in full, and has the same bytes.
    `refused`: bookies of the target have deleted a ledger with this id, and take no other one before their restart. The
        copy stays open: bookies that start during that time take it.
    `too large`: bookies of the target take no entry of this size; the copy was removed.
    `different`: another ledger has the same id there; it was not touched.
    `unreadable`: an entry, or the ledger's end, cannot be read at the source (or, in a comparison, at the target). If
        the cause may pass, the copy stays open: its id is written again by the next attempt.
    `not recovered`: it is open at the source and could not be closed there; nothing is known of its entries.
    `deleted`: it was deleted at the source during the copy.
    `open`: it is not closed at the source; only its confirmed entries were copied, or nothing.
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
    """Progress of the open copy of a ledger that is, or was, open at the source.

    Attributes:
        through: last entry that was copied, acknowledged by each replica, and compared.
        length: bytes of the data of all entries up to it.
        mzxid: zxid of the copy's znode. A different one means other bookies, and the copy starts again.
    """

    through: int
    length: int
    mzxid: int


class CopyOutcome(NamedTuple):
    """Result for one ledger.

    Attributes:
        ledger_id: id of the ledger.
        verdict: state of the ledger in the target.
        entries: number of entries written, or compared if nothing was written.
        bytes: bytes of their header, digest and data, each entry counted once.
        detail: cause of a failure; else empty.
        mzxid: zxid of the last change of the target's metadata at the comparison; 0 without a comparison.
        begun: progress of an open copy; None if unknown.
        transient: whether the cause may pass: bookies did not answer or refuse the ledger for now, or another client is
            closing it.
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
        """True if the target has the ledger."""
        return self.verdict in (Verdict.COPIED, Verdict.EQUAL)

    @property
    def failed(self) -> bool:
        """True if an operator must decide about the ledger."""
        return self.verdict in (
            Verdict.REFUSED,
            Verdict.TOO_LARGE,
            Verdict.DIFFERENT,
            Verdict.UNREADABLE,
            Verdict.NOT_RECOVERED,
        )
