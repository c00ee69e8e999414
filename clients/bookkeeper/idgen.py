"""The generator of ledger ids: what it will give next, and how to lift it.

BookKeeper has two of them. The short one creates a sequential node beneath `/idgen`, whose number is the id. Where
`/idgen-long` exists the long one is used: its child `HOB-<n>` of the highest n gives the upper half of the id, and a
sequential node beneath that child the lower one. Where it has no such child, or the lower half is used up, the
generator creates the next one, and begins with n = 1.

`HOB-0000000000` would let ids start from 0 again, onto ledgers that exist. That is what creating the first child as a
sequential node does, so children are created by their full name here.

A running client of BookKeeper's own driver (`zk+hierarchical://`) remembers for good that `/idgen-long` was missing,
and which children it had; it must be restarted before it sees a lifted generator. Pulsar's driver
(`metadata-store:`) looks each time.

Pulsar's driver does the same on Oxia, where the number of a sequential record is how often its parent was written.

Source: LongZkLedgerIdGenerator and ZkLedgerIdGenerator of BookKeeper 4.18, PulsarLedgerIdGenerator of Pulsar 5.0.1;
PIP-477, invariant I11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from clients.bookkeeper.layout import ID_GENERATOR, LONG_ID_GENERATOR
from clients.errors import StoreConflict, StoreUnsupported
from clients.zookeeper.coordination import Coordination, CoordinationReader, Create
from clients.zookeeper.scan import created_children
from models.store_url import StoreUrl

#: First lower half, and first id of the short generator, that are not given out.
_LOW_END = 0x7FFF_FFFF
#: Both generators format n as an int of Java.
_HIGHEST = 0x7FFF_FFFF
#: Lifts to try while others lift as well.
_TRIES = 5
_HIGH = re.compile(r"(?:HOB-)?(\d+)", re.ASCII)


class IdGenerator(NamedTuple):
    """Where a cluster's generator stands.

    Attributes:
        next_id: what the next ledger gets.
        high: n of the child that gives the upper half; None while the short generator is in use, or has just ended.
        short_next: what the short generator would give.
    """

    next_id: int
    high: int | None
    short_next: int


def high_path(high: int) -> str:
    """Path of the node that gives the upper half of ids.

    Raises:
        ValueError: it is below 1, or more than the generators can read.
    """
    if not 1 <= high <= _HIGHEST:
        raise ValueError(f"{high} is no upper half of a ledger id; it must lie between 1 and {_HIGHEST}")
    return f"{LONG_ID_GENERATOR}/HOB-{high:010d}"


def read_generator(coordination: CoordinationReader) -> IdGenerator:
    """What the generator would give, without taking it.

    Args:
        coordination: a session whose root is the ledgers root.

    Raises:
        StoreError: the store cannot be read.
    """
    short_next = _created(coordination, ID_GENERATOR)
    if not coordination.exists(LONG_ID_GENERATOR):
        return standing_of(short_next, None, lambda _: 0)
    names = coordination.children(LONG_ID_GENERATOR)
    return standing_of(short_next, names, lambda name: _created(coordination, f"{LONG_ID_GENERATOR}/{name}"))


def standing_of(short_next: int, names: Sequence[str] | None, low: Callable[[str], int]) -> IdGenerator:
    """Where a generator stands, on any store.

    Args:
        short_next: what the short generator would give.
        names: children of `/idgen-long`; None where that is missing.
        low: the lower half that the next id gets beneath one of them.
    """
    if names is None:
        return IdGenerator(short_next if short_next < _LOW_END else 1 << 32, None, short_next)
    found = [(int(match[1]), name) for name in names if (match := _HIGH.fullmatch(name))]
    if not found:
        return IdGenerator(1 << 32, None, short_next)
    # Both generators take the highest child, whoever created it.
    high, name = max(found)
    half = low(name)
    return IdGenerator(high << 32 | half if half < _LOW_END else (high + 1) << 32, high, short_next)


def raise_generator(coordination: Coordination, above: int) -> IdGenerator:
    """Have the generator give ids above this one; where it does already, nothing is changed.

    There is no way back down: whoever must write this cluster's ledgers next to another cluster's must be lifted
    above that one. It can be repeated, and done twice at once.

    Args:
        coordination: a session whose root is the ledgers root.
        above: an id that must not be given again, nor one below it.

    Returns:
        Where the generator stands then, as read back.

    Raises:
        StoreUnsupported: there is no ledgers root, or no id above this one.
        StoreConflict: others keep changing the generator.
        StoreError: the store cannot be read or written.
    """
    if not coordination.exists("/"):
        raise StoreUnsupported(f"there is no ledgers root at {coordination.url}; initialise the BookKeeper cluster")
    return lift(
        above,
        coordination.url,
        read=lambda: read_generator(coordination),
        create_high=lambda high: _create_high(coordination, high),
    )


def lift(
    above: int, url: StoreUrl, *, read: Callable[[], IdGenerator], create_high: Callable[[int], None]
) -> IdGenerator:
    """Have a generator on any store give ids above this one; see `raise_generator`."""
    standing = read()
    for _ in range(_TRIES):
        if standing.next_id > above:
            return standing
        high = max(standing.high or 0, above >> 32) + 1
        if high > _HIGHEST:
            raise StoreUnsupported(f"there are no ledger ids left above {_HIGHEST << 32} at {url}")
        create_high(high)
        # Read back, and not taken for granted: somebody else may have lifted it less far at the same moment.
        standing = read()
    raise StoreConflict(
        f"ids at {url} still begin at {standing.next_id} where {above} is to be passed; others keep changing the "
        "generator, stop them and try again"
    )


def _create_high(coordination: Coordination, high: int) -> None:
    parts = [Create(high_path(high))]
    if not coordination.exists(LONG_ID_GENERATOR):
        # Together: a generator that finds the parent alone would create a child of its own.
        parts.insert(0, Create(LONG_ID_GENERATOR))
    try:
        coordination.commit(parts)
    except StoreConflict:
        return  # somebody else was first; the caller reads again what stands


def _created(coordination: CoordinationReader, path: str) -> int:
    stat = coordination.exists(path)
    return created_children(stat.cversion, stat.num_children) if stat else 0
