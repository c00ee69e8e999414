"""Compare ledgers of two clusters in full: metadata, and the content of every entry."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from xxhash import xxh3_128

from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.digests import read_content
from clients.bookkeeper.ledgers import LedgerRecord
from clients.bookkeeper.metadata import DigestType, LedgerMetadata
from clients.bookkeeper.reader import LedgerReader
from clients.errors import LedgerUnreadable, StoreError, StoreUnreachable
from models.text import shown

#: Ledgers up to this many bytes are read as a whole, many at once.
WHOLE_BYTES = 4 << 20

_WHOLE: Mapping[int, int] = {}

Check = Callable[[int], None]
"""Called with the bytes that are written next, or were read at the source to be compared, or 0; it may wait, and raises
when the work must stop."""


class Content(NamedTuple):
    """Content of a ledger.

    Attributes:
        digest: of the content of all bodies, and of where one ends and the next begins.
        entries: how many.
        bytes: of all bodies.
    """

    digest: bytes
    entries: int
    bytes: int


class ContentSum:
    """Adds up the content of a ledger's bodies in their order.

    Args:
        digest: type of the ledger's digests.
    """

    def __init__(self, digest: DigestType) -> None:
        self._digest = digest
        self._bodies, self._sizes = xxh3_128(), xxh3_128()
        self._entries = self._bytes = 0

    def add(self, bodies: Sequence[bytes]) -> int:
        """Take in the next bodies; returns their bytes."""
        # Sizes go into a sum of their own: the same bytes, cut at other places, are other entries.
        sizes = array("I", map(len, bodies))
        size = sum(sizes)
        self._sizes.update(sizes.tobytes())
        update = self._bodies.update
        for body in bodies:
            length, data = read_content(body, self._digest)
            update(length)
            update(data)
        self._entries += len(bodies)
        self._bytes += size
        return size

    def content(self) -> Content:
        """Return the content of the added bodies."""
        return Content(self._bodies.digest() + self._sizes.digest(), self._entries, self._bytes)


def compare_batch(
    source: Cluster, target: Cluster, ids: Sequence[int], *, check: Check = lambda _: None
) -> list[CopyOutcome]:
    """Compare closed ledgers of the source with those of the target; only reads.

    Returns:
        An outcome for each id: `equal`, `different` (also where the target has none), `unreadable`, `deleted` or
            `open`.

    Raises:
        StoreError: a store, or a bookie of the target, failed, or all bookies of the source did.
    """
    outcomes: list[CopyOutcome] = []
    pairs: list[tuple[LedgerRecord, LedgerRecord]] = []
    records = zip(ids, source.directory.read(ids), target.directory.read(ids), strict=True)
    for ledger_id, mine, theirs in records:
        if mine is None:
            outcomes.append(CopyOutcome(ledger_id, Verdict.DELETED))
        elif not mine.metadata.closed:
            outcomes.append(CopyOutcome(ledger_id, Verdict.OPEN))
        elif theirs is None:
            outcomes.append(CopyOutcome(ledger_id, Verdict.DIFFERENT, detail="the target does not have it"))
        else:
            pairs.append((mine, theirs))
    return outcomes + compare_records(source, target, pairs, {}, check=check)


def compare_records(
    source: Cluster,
    target: Cluster,
    pairs: Iterable[tuple[LedgerRecord, LedgerRecord]],
    read_before: Mapping[int, Content],
    *,
    check: Check,
    firsts: Mapping[int, int] = _WHOLE,
) -> list[CopyOutcome]:
    """Compare ledgers whose metadata were read: those of the source, which are closed, with those of the target.

    Args:
        source: the one cluster.
        target: the other.
        pairs: metadata of each ledger on both sides.
        read_before: what ledgers hold that were read from the source a moment ago; they are not read there again.
        check: see `Check`.
        firsts: ledgers that were compared before, up to this entry.

    Returns:
        An outcome for each pair: `equal`, `different`, `unreadable` or `deleted`.
    """
    outcomes: list[CopyOutcome] = []
    alike: list[tuple[LedgerRecord, LedgerRecord]] = []
    for mine, theirs in pairs:
        if why := _unlike(mine.metadata, theirs.metadata):
            outcomes.append(CopyOutcome(mine.ledger_id, Verdict.DIFFERENT, detail=why))
        else:
            alike.append((mine, theirs))
    contents: dict[int, Content | StoreError] = dict(read_before)
    # What was just copied is not read from the source again: its digests were checked on the way.
    contents |= read_contents(source, [mine for mine, _ in alike if mine.ledger_id not in read_before], check, firsts)
    readable = [pair for pair in alike if isinstance(contents[pair[0].ledger_id], Content)]
    # What is read at the source counts like what is written: brokers use these bookies.
    copies = read_contents(target, [theirs for _, theirs in readable], lambda _: check(0), firsts)
    for mine, theirs in alike:
        expected, copied = contents[mine.ledger_id], copies.get(mine.ledger_id)
        if isinstance(expected, StoreError):
            outcomes.append(unreadable(source, mine.ledger_id, expected))
        elif isinstance(copied, StoreError):
            outcomes.append(_unreadable_copy(mine.ledger_id, copied))
        elif expected == copied or (entry := _first_difference(source, target, mine, theirs, check)) is None:
            outcomes.append(CopyOutcome(mine.ledger_id, Verdict.EQUAL, *expected[1:], mzxid=theirs.mzxid))
        elif isinstance(entry, CopyOutcome):
            outcomes.append(entry)
        else:
            why = f"entry {entry} has other bytes in the target; delete the ledger there to have it copied again"
            outcomes.append(CopyOutcome(mine.ledger_id, Verdict.DIFFERENT, *expected[1:], detail=why))
    return outcomes


def read_contents(
    cluster: Cluster, records: Sequence[LedgerRecord], check: Check, firsts: Mapping[int, int] = _WHOLE
) -> dict[int, Content | StoreError]:
    """Return the content of closed ledgers, or why they cannot be read, by id."""
    contents: dict[int, Content | StoreError] = {}
    digests = {record.ledger_id: record.metadata.digest for record in records}
    for ledger_id, parts in read_all(cluster, records, firsts):
        total = ContentSum(digests[ledger_id])
        for piece in parts:
            if isinstance(piece, StoreError):
                contents[ledger_id] = piece
                break
            check(total.add(piece))
        else:
            contents[ledger_id] = total.content()
    return contents


def read_all(
    cluster: Cluster, records: Iterable[LedgerRecord], firsts: Mapping[int, int] = _WHOLE
) -> Iterator[tuple[int, Iterable[list[bytes] | StoreError]]]:
    """Read closed ledgers: small ones as a whole and many at once, large ones part by part and one after the other.

    Args:
        cluster: where they lie.
        records: the ledgers.
        firsts: ledgers of which only the entries from this one on are wanted.

    Yields:
        Id, and bodies in the order of the entries; the last part may be the error for which the rest cannot be read.
        The parts of a ledger must be taken before the next ledger is.
    """
    reader = LedgerReader(cluster.bookies)
    ledgers = [(record.ledger_id, record.metadata) for record in records]
    for ledger_id, bodies in reader.read_many([ledger for ledger in ledgers if _small(*ledger, firsts)], firsts):
        yield ledger_id, (bodies,)
    for ledger_id, metadata in ledgers:
        if not _small(ledger_id, metadata, firsts):
            yield ledger_id, _ending_with_error(reader.entries(ledger_id, metadata, firsts.get(ledger_id, 0)))


def _small(ledger_id: int, metadata: LedgerMetadata, firsts: Mapping[int, int]) -> bool:
    # Entries of an unknown size may not fit into memory.
    # mutant: bookie-cluster/a-ledger-of-a-false-length-is-read-as-a-whole
    if metadata.last_entry >= 0 and metadata.entry_size is None:
        return False
    remaining = metadata.last_entry + 1 - firsts.get(ledger_id, 0)
    return metadata.length * remaining <= WHOLE_BYTES * (metadata.last_entry + 1)


def _ending_with_error(parts: Iterable[list[bytes]]) -> Iterator[list[bytes] | StoreError]:
    try:
        yield from parts
    except StoreError as cause:
        yield cause


def unreadable(source: Cluster, ledger_id: int, cause: StoreError) -> CopyOutcome:
    """Return the outcome of a ledger that cannot be read at the source.

    Raises:
        StoreError: it is not this ledger's trouble: the store fails, or no bookie answers (see `Cluster`).
    """
    # Pulsar deletes ledgers at any time, with their entries: that is not damage.
    if source.directory.read([ledger_id]) == [None]:
        return CopyOutcome(ledger_id, Verdict.DELETED)
    if not isinstance(cause, (LedgerUnreadable, StoreUnreachable)):
        raise cause
    if isinstance(cause, StoreUnreachable) and not source.may_be_down:
        bookies = source.directory.bookies()
        if all(source.bookies.quarantined(bookie_id) for bookie_id in bookies):
            raise cause
    transient = isinstance(cause, StoreUnreachable) and not source.may_be_down
    return CopyOutcome(ledger_id, Verdict.UNREADABLE, detail=str(cause), transient=transient)


def _unreadable_copy(ledger_id: int, cause: StoreError) -> CopyOutcome:
    # A bookie of the target that is away says nothing of the ledger: the step is tried again.
    if not isinstance(cause, LedgerUnreadable):
        raise cause
    return CopyOutcome(ledger_id, Verdict.UNREADABLE, detail=f"in the target: {cause}")


def _unlike(mine: LedgerMetadata, theirs: LedgerMetadata) -> str:
    """Return how the metadata differ; empty if their content is the same."""
    if mine.same_content(theirs):
        return ""
    names = ("state", "last_entry", "length", "digest", "custom_map")
    differing = [name for name in names if getattr(mine, name) != getattr(theirs, name)] or ["password"]
    said = ", ".join(f"{name} {_shown(mine, name)} and {_shown(theirs, name)}" for name in differing)
    return f"the target has another ledger with this id, which differs in {said}; delete it if it is not needed"


def _shown(metadata: LedgerMetadata, name: str) -> str:
    if name == "password":
        return "(not shown)"
    value: object = getattr(metadata, name)
    return shown(str(getattr(value, "name", value)))


def _first_difference(
    source: Cluster, target: Cluster, mine: LedgerRecord, theirs: LedgerRecord, check: Check
) -> int | CopyOutcome | None:
    """Return the first entry that differs, None if none does, or the outcome of a ledger that cannot be read."""
    # Read again, since sums do not tell where; only a ledger that differs costs this.
    originals, copies = _contents(source, mine, check), _contents(target, theirs, lambda _: None)
    for entry, (original, copy) in enumerate(zip(originals, copies, strict=False)):
        if isinstance(original, StoreError):
            return unreadable(source, mine.ledger_id, original)
        if isinstance(copy, StoreError):
            return _unreadable_copy(mine.ledger_id, copy)
        if original != copy:
            return entry
    return None


def _contents(cluster: Cluster, record: LedgerRecord, check: Check) -> Iterator[tuple[bytes, memoryview] | StoreError]:
    for bodies in _ending_with_error(LedgerReader(cluster.bookies).entries(record.ledger_id, record.metadata)):
        if isinstance(bodies, StoreError):
            yield bodies
            return
        check(sum(map(len, bodies)))
        for body in bodies:
            yield read_content(body, record.metadata.digest)
