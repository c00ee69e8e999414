"""A compact table of the facts about all ledgers of a cluster, about seventy bytes for each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, ItemsView, Iterable, Iterator, Mapping, ValuesView
from types import MappingProxyType
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from clients.bookkeeper.metadata import LedgerMetadata, LedgerState

_PULSAR = b"pulsar"


class LedgerFacts(NamedTuple):
    """A ledger's current state, without the fields that only its copy needs; see `LedgerMetadata`.

    Attributes:
        ledger_id: its id.
        version: its znode's version.
        mzxid: zxid of its znode's last change.
        czxid: zxid of its znode's creation.
        state: whether it may grow.
        length: bytes of all entries' data; 0 unless closed.
        last_entry: last entry's id; -1 unless closed, or if it is empty.
        ensemble_size: bookies of one segment.
        write_quorum: replicas of an entry.
        component: Pulsar's use of it; empty if it is not recorded.
        pulsars: whether its metadata say that it is Pulsar's.
        is_copy: see `LedgerMetadata`.
        origin: a digest of the fields that never change: digest type, password and custom metadata.
    """

    ledger_id: int
    version: int
    mzxid: int
    czxid: int
    state: LedgerState
    length: int
    last_entry: int
    ensemble_size: int
    write_quorum: int
    component: str
    pulsars: bool
    is_copy: bool
    origin: int

    @property
    def closed(self) -> bool:
        """Whether length and last entry are final."""
        return self.state is LedgerState.CLOSED

    def existed_at(self, zxid: int | None) -> bool:
        """Return whether its znode, which may have changed since, is the one of this transaction; False for None."""
        # Its last change is a bound too: transactions of another ZooKeeper say nothing about this one's.
        # mutant: bookie-cluster/a-ledger-that-was-created-again-is-the-same, bookie-cluster/zxids-of-another-zookeeper
        return zxid is not None and self.czxid <= zxid <= self.mzxid

    def same_content(self, other: LedgerFacts) -> bool:
        """Return whether both describe the same content of the ledger; its bookies and replicas do not matter."""
        return self._content() == other._content()

    def _content(self) -> tuple[object, ...]:
        return self.state, self.last_entry, self.length, self.origin


def ledger_facts(ledger_id: int, metadata: LedgerMetadata, version: int, mzxid: int, czxid: int) -> LedgerFacts:
    """Return the facts that are kept of a ledger."""
    return LedgerFacts(
        ledger_id=ledger_id,
        version=version,
        mzxid=mzxid,
        czxid=czxid,
        state=metadata.state,
        length=metadata.length,
        last_entry=metadata.last_entry,
        ensemble_size=metadata.ensemble_size,
        write_quorum=metadata.write_quorum,
        component=metadata.component,
        pulsars=metadata.custom_map.get("application") == _PULSAR,
        is_copy=metadata.is_copy,
        origin=_origin(metadata),
    )


def _origin(metadata: LedgerMetadata) -> int:
    parts = [bytes([metadata.digest]), metadata.password]
    # The order does not count: the writer of a copy may order custom metadata differently.
    for key, value in sorted(metadata.custom_map.items()):
        parts += [key.encode(), value]
    return xxh3_64_intdigest(b"".join(len(value).to_bytes(4) + value for value in parts))


class _Kind(NamedTuple):
    """Properties that many ledgers have in common."""

    state: LedgerState
    ensemble_size: int
    write_quorum: int
    component: str
    pulsars: bool
    is_copy: bool


class LedgerTable(Mapping[int, LedgerFacts]):
    """Immutable table of ledgers by id, ascending.

    Args:
        facts: of each ledger, in any order.

    Attributes:
        undecodable: ledgers of the same cluster whose metadata cannot be decoded, each with the reason; they are not
            in the table. Only the table of a whole cluster has them.
    """

    def __init__(self, facts: Iterable[LedgerFacts] = ()) -> None:
        self.undecodable: Mapping[int, str] = MappingProxyType({})
        self._kinds: list[_Kind] = []
        self._ids, self._versions = array("q"), array("q")
        self._mzxids, self._czxids = array("q"), array("q")
        self._lengths, self._lasts = array("q"), array("q")
        self._origins, self._kind = array("Q"), array("L")
        numbers: dict[_Kind, int] = {}
        for fact in facts:
            kind = _Kind(fact.state, fact.ensemble_size, fact.write_quorum, fact.component, fact.pulsars, fact.is_copy)
            number = numbers.get(kind)
            if number is None:
                number = numbers[kind] = len(self._kinds)
                self._kinds.append(kind)
            self._ids.append(fact.ledger_id)
            self._versions.append(fact.version)
            self._mzxids.append(fact.mzxid)
            self._czxids.append(fact.czxid)
            self._lengths.append(fact.length)
            self._lasts.append(fact.last_entry)
            self._origins.append(fact.origin)
            self._kind.append(number)
        self._sort()

    def only(self, ids: Container[int]) -> LedgerTable:
        """Return the ledgers with one of these ids."""
        return self.where(lambda facts: facts.ledger_id in ids)

    def where(self, chosen: Callable[[LedgerFacts], bool]) -> LedgerTable:
        """Return the ledgers for which a condition is true."""
        return LedgerTable(facts for facts in self.values() if chosen(facts))

    @property
    def highest(self) -> int:
        """The highest id, -1 if there is none."""
        return self._ids[-1] if self._ids else -1

    def at(self, index: int) -> LedgerFacts:
        """Return the ledger at this index in the order of ids."""
        state, ensemble_size, write_quorum, component, pulsars, is_copy = self._kinds[self._kind[index]]
        return LedgerFacts(
            self._ids[index],
            self._versions[index],
            self._mzxids[index],
            self._czxids[index],
            state,
            self._lengths[index],
            self._lasts[index],
            ensemble_size,
            write_quorum,
            component,
            pulsars,
            is_copy,
            self._origins[index],
        )

    def __getitem__(self, ledger_id: int) -> LedgerFacts:
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids) or self._ids[index] != ledger_id:
            raise KeyError(ledger_id)
        return self.at(index)

    def __contains__(self, ledger_id: object) -> bool:
        if not isinstance(ledger_id, int):
            return False
        index = bisect_left(self._ids, ledger_id)
        return index < len(self._ids) and self._ids[index] == ledger_id

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def values(self) -> ValuesView[LedgerFacts]:
        """Return all ledgers, by id."""
        return _Values(self)

    def items(self) -> ItemsView[int, LedgerFacts]:
        """Return all ledgers with their ids, by id."""
        return _Items(self)

    def _sort(self) -> None:
        ids = self._ids
        if all(ids[index] < ids[index + 1] for index in range(len(ids) - 1)):
            return
        # Of ledgers that were added twice the later one stays, as in any mapping.
        last = {ledger: index for index, ledger in enumerate(ids)}
        order = [last[ledger] for ledger in sorted(last)]
        for name in ("_ids", "_versions", "_mzxids", "_czxids", "_lengths", "_lasts", "_origins", "_kind"):
            column: array[int] = getattr(self, name)
            setattr(self, name, array(column.typecode, (column[index] for index in order)))


class _Values(ValuesView[LedgerFacts]):
    """Iterate without a search for each item."""

    def __init__(self, table: LedgerTable) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[LedgerFacts]:
        return map(self._table.at, range(len(self._table)))


class _Items(ItemsView[int, LedgerFacts]):
    """Iterate without a search for each item."""

    def __init__(self, table: LedgerTable) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[int, LedgerFacts]]:
        return ((facts.ledger_id, facts) for facts in self._table.values())
