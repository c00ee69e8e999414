"""The last entry of a ledger on its bookies, read without fencing, so that its writer continues."""

from __future__ import annotations

from functools import partial

from clients.bookkeeper import wire_v2
from clients.bookkeeper.connection import Refused
from clients.bookkeeper.digests import HEADER, EntryCorrupt, read_header, verify_entry
from clients.bookkeeper.metadata import LedgerMetadata
from clients.bookkeeper.pool import Bookies
from clients.bookkeeper.reader import LedgerReader
from clients.errors import StoreError, StoreUnreachable

_ABSENT = {wire_v2.NO_ENTRY, wire_v2.NO_LEDGER}


def last_entries(bookies: Bookies, ledger_id: int, metadata: LedgerMetadata) -> list[bytes]:
    """Return bodies of the last entry: one of a closed ledger, what each bookie has as the last of an open one.

    None of an open ledger needs to be acknowledged; each tells in its header which entry before it is.

    Raises:
        LedgerUnreadable: no replica of a closed ledger's last entry is valid.
        StoreUnreachable: no bookie answers.
    """
    if metadata.closed:
        last = metadata.last_entry
        return [LedgerReader(bookies).read_entry(ledger_id, metadata, last)] if last >= 0 else []
    first, ensemble = metadata.segments[-1]
    bodies = [body for body in _ask(bookies, ledger_id, ensemble) if _valid(body, ledger_id, metadata)]
    # Where nothing was written to the newest ensemble, the one before it ends the ledger, and all of it is confirmed.
    if not bodies and first > 0:
        bodies = [LedgerReader(bookies).read_entry(ledger_id, metadata, first - 1)]
    return bodies


def last_confirmed(bookies: Bookies, ledger_id: int, metadata: LedgerMetadata) -> int:
    """Return the last entry of an open ledger that its writer is known to have acknowledged; -1 if none is known.

    Raises:
        StoreError: as `last_entries`.
    """
    confirmed = metadata.segments[-1].first_entry - 1
    headers = [read_header(body) for body in last_entries(bookies, ledger_id, metadata)]
    return max([confirmed, *(header.last_add_confirmed for header in headers)])


def _ask(bookies: Bookies, ledger_id: int, ensemble: tuple[str, ...]) -> list[bytes]:
    answers: dict[str, list[bytes] | Refused] = {}
    for bookie_id in dict.fromkeys(ensemble):
        try:
            connection = bookies.connection(bookie_id)
        except StoreError as cause:
            answers[bookie_id] = Refused(wire_v2.LOST, str(cause))
        else:
            connection.read(ledger_id, wire_v2.LAST_ENTRY, partial(answers.__setitem__, bookie_id))
    while len(answers) < len(set(ensemble)):
        bookies.loop.poll()
    silent = {
        bookie_id: answer
        for bookie_id, answer in answers.items()
        if isinstance(answer, Refused) and answer.code not in _ABSENT
    }
    if len(silent) == len(answers):
        said = "; ".join(f"{bookie_id} {answer.reason}" for bookie_id, answer in silent.items())
        raise StoreUnreachable(f"the end of ledger {ledger_id} cannot be read: {said}", ledger_id=ledger_id)
    return [answer[0] for answer in answers.values() if not isinstance(answer, Refused)]


def _valid(body: bytes, ledger_id: int, metadata: LedgerMetadata) -> bool:
    if len(body) < HEADER.size:
        return False
    try:
        verify_entry(body, ledger_id, read_header(body).entry_id, metadata.digest, metadata.password)
    except EntryCorrupt:
        return False
    return True
