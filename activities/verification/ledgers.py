"""Comparison of the ledgers of two BookKeeper clusters, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from activities.verification.context import Comparison
from clients.errors import StoreUnreachable
from clients.verification.bookie_entries import BookieEntries, Missing
from clients.verification.entry_digests import is_intact, read_content
from clients.verification.ledger_records import LedgerNode, LedgerRecords
from models.bookie_cluster.input import Routing
from models.verification.input import LedgerRange

METHOD = "metadata of every closed ledger of both sides, and the content of each entry, from one intact replica a side"

_OPEN = "ledgers that are open"
_NOT_YET = "closed ledgers that the target does not have before the commit: copied in a later round, or not to be moved"
_SOURCE_ONLY = "ledgers that the target does not have after the commit: not copied, not to be moved, or deleted there"
_TARGET_ONLY = "ledgers that only the target has"
_DELETED = "ledgers that were deleted while they were compared"
_UNREADABLE = "unreadable: "
_WINDOW_BYTES = 8 << 20
_MOST_AT_ONCE = 256
# Bytes that an entry may have whose ledger does not tell its length.
_LARGE_ENTRY = 512 << 10


@dataclass
class _Entries:
    """Entries of a ledger on one side.

    Attributes:
        bodies: an undamaged copy of each entry, as it is stored.
        missing: why a bookie gave none, by entry; it may be in `bodies` all the same.
        damaged: entries of which a bookie has a damaged copy.
    """

    bodies: dict[int, bytes] = field(default_factory=dict[int, bytes])
    missing: dict[int, str] = field(default_factory=dict[int, str])
    damaged: dict[int, str] = field(default_factory=dict[int, str])


class LedgerSide:
    """The ledgers of one cluster.

    Args:
        records: their metadata.
        entries: their entries.
    """

    def __init__(self, records: LedgerRecords, entries: BookieEntries) -> None:
        self.records = records
        self.entries = entries

    def read(self, ledger_id: int, node: LedgerNode, wanted: Sequence[int]) -> _Entries:
        """Read entries of a ledger, each from the first of its bookies that has an undamaged copy.

        Raises:
            StoreUnreachable: no bookie that may have an entry answers.
        """
        entries = _Entries()
        failure: StoreUnreachable | None = None
        for replica in range(node.write_quorum):
            by_bookie: dict[str, list[int]] = {}
            for entry in wanted:
                if entry not in entries.bodies:
                    by_bookie.setdefault(node.replicas(entry)[replica], []).append(entry)
            for bookie, asked in by_bookie.items():
                try:
                    answers = self.entries.read(bookie, ledger_id, asked)
                except StoreUnreachable as error:
                    failure = error
                    continue
                for entry, body in zip(asked, answers, strict=True):
                    if isinstance(body, Missing):
                        entries.missing[entry] = body.reason
                    elif is_intact(body, ledger_id, entry, node.digest, node.password):
                        entries.bodies[entry] = body
                    else:
                        entries.damaged[entry] = entries.missing[entry] = f"the copy of bookie {bookie} is damaged"
        if failure and len(entries.bodies) < len(wanted):
            # Another attempt may reach it: an entry is missing only if every bookie says so.
            raise failure
        return entries


class LedgerComparison:
    """Compares the ledgers that exist on both sides.

    Args:
        comparison: counts what was compared, and continues what an attempt before has compared.
        source: the old cluster.
        target: the new cluster.
        ledgers: ids to compare.
        routing: of the migration.
    """

    def __init__(
        self,
        comparison: Comparison,
        source: LedgerSide,
        target: LedgerSide,
        ledgers: LedgerRange,
        routing: Routing,
    ) -> None:
        self._comparison = comparison
        self._source = source
        self._target = target
        self._ledgers = ledgers
        self._routing = routing

    def run(self) -> None:
        """Compare every ledger, in the order of ids."""
        sources, targets = self._source.records.ids(), self._target.records.ids()
        first, last = self._ledgers
        ids = sorted(ledger_id for ledger_id in {*sources, *targets} if first <= ledger_id <= last)
        position = self._comparison.tally.position
        after = int(position[0]) if position else -1
        self._comparison.total = len(ids)
        for ledger_id in ids:
            if ledger_id <= after:
                continue
            self._comparison.gate.check()
            self._compare(ledger_id, sources, targets)
            self._comparison.passed([str(ledger_id)], 1)

    def _compare(self, ledger_id: int, sources: Mapping[int, str], targets: Mapping[int, str]) -> None:
        tally, name = self._comparison.tally, str(ledger_id)
        source = self._node(self._source, sources.get(ledger_id))
        target = self._node(self._target, targets.get(ledger_id))
        if source is None and target is None:
            return
        if source is None:
            tally.exclude(_TARGET_ONLY, name)
        elif target is None:
            # A round copies it again if its copy was lost. Whether it moves at all, only the migration knows.
            absent = _NOT_YET if source.is_closed else _OPEN
            tally.exclude(_SOURCE_ONLY if self._comparison.committed else absent, name)
        elif not ((source.is_closed and target.is_closed) or self._is_final):
            tally.exclude(_OPEN, name)
        elif why := _difference(source, target) or self._compare_entries(ledger_id, source, target):
            # A rollback that has begun copies to the source.
            self._comparison.ask_again()
            # Brokers delete ledgers at any time, with their entries.
            again = self._node(self._source, sources[ledger_id]), self._node(self._target, targets[ledger_id])
            if None in again:
                tally.exclude(_DELETED, name)
            elif why.startswith(_UNREADABLE):
                tally.unreadable.add(f"ledger {ledger_id}, {why.removeprefix(_UNREADABLE)}")
            else:
                tally.differing.add(f"ledger {ledger_id}, {why}")

    @property
    def _is_final(self) -> bool:
        """True if brokers read these ledgers only from the target, and nothing finishes a copy any more."""
        return self._comparison.committed and self._routing is Routing.RESTART

    def _node(self, side: LedgerSide, path: str | None) -> LedgerNode | None:
        return None if path is None else side.records.ledgers([path])[0]

    def _compare_entries(self, ledger_id: int, source: LedgerNode, target: LedgerNode) -> str:
        """Compare all entries; return the first that differs or cannot be read, empty if all are equal."""
        digest, size = sha256(), 0
        for wanted in windows(source):
            mine, theirs = self._source.read(ledger_id, source, wanted), self._target.read(ledger_id, target, wanted)
            for entry in wanted:
                if entry in theirs.damaged:
                    return f"entry {entry}: in the target, {theirs.damaged[entry]}"
                if lacking := [(side, each) for side, each in _sides(mine, theirs) if entry not in each.bodies]:
                    side, entries = lacking[0]
                    return f"{_UNREADABLE}entry {entry}: in the {side}, {entries.missing[entry]}"
                original, copy = (read_content(each.bodies[entry], source.digest) for each in (mine, theirs))
                if original != copy:
                    return f"entry {entry}: other bytes in the target"
                digest.update(b"%d " % len(original) + original)
                size += len(original)
            self._comparison.read(2 * sum(map(len, mine.bodies.values())))
        self._comparison.tally.add_equal(b"%d %b" % (ledger_id, digest.digest()), size)
        return ""


def _sides(mine: _Entries, theirs: _Entries) -> tuple[tuple[str, _Entries], tuple[str, _Entries]]:
    return ("source", mine), ("target", theirs)


def _difference(source: LedgerNode, target: LedgerNode) -> str:
    if not target.is_closed:
        return "open in the target: its copy is unfinished"
    if not source.is_closed:
        return "open in the source: its copy may be unfinished"
    if source.last_entry != target.last_entry:
        return f"last entry {source.last_entry}, and {target.last_entry} in the target"
    if source.length != target.length:
        return f"{source.length:,} bytes, and {target.length:,} in the target"
    for name, mine, theirs in (
        ("digest type", source.digest, target.digest),
        ("password", source.password, target.password),
        ("custom metadata", source.custom, target.custom),
    ):
        if mine != theirs:
            return f"another {name} in the target"
    return ""


def windows(node: LedgerNode) -> Iterator[range]:
    """Yield the entries of a ledger in parts that memory can hold."""
    entries = node.last_entry + 1
    # Fewer bytes than entries: BookKeeper's own recovery may record a length of 0 although there are entries.
    each = node.length // entries if node.length >= entries > 0 else _LARGE_ENTRY
    count = max(1, min(_MOST_AT_ONCE, _WINDOW_BYTES // each))
    for first in range(0, entries, count):
        yield range(first, min(first + count, entries))
