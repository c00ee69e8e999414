"""The generator of ledger ids: its next id, and how to raise it.

BookKeeper has two generators. The short one creates a sequential node beneath `/idgen`; the node's number is the id.
If `/idgen-long` exists, the long one is used: its child `HOB-<n>` with the highest n gives the upper half of the id,
and a sequential node beneath that child the lower half. If there is no such child, or the lower half is used up, the
generator creates the next child, starting with n = 1.

`HOB-0000000000` would make ids start from 0 again, where ledgers exist. Creating the first child as a sequential node
does that, so children are created by their full name here.

A running client of BookKeeper's own driver (`zk+hierarchical://`) caches that `/idgen-long` was missing, and its
children; it must be restarted before it sees a raised generator. Pulsar's driver (`metadata-store:`) reads each time.

Pulsar's driver does the same on Oxia, where the number of a sequential record is the number of writes of its parent.

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

#: First lower half, and first id of the short generator, that is not used.
_LOW_END = 0x7FFF_FFFF
#: Both generators format n as an int of Java.
_HIGHEST = 0x7FFF_FFFF
#: Most tries to raise the generator while other clients raise it too.
_TRIES = 5
_HIGH = re.compile(r"(?:HOB-)?(\d+)", re.ASCII)


class IdGenerator(NamedTuple):
    """State of a cluster's generator.

    Attributes:
        next_id: id of the next ledger.
        high: n of the child that gives the upper half; None while the short generator is in use, or has just ended.
        short_next: next id of the short generator.
    """

    next_id: int
    high: int | None
    short_next: int


def high_path(high: int) -> str:
    """Return the path of the node that gives the upper half of ids.

    Raises:
        ValueError: the number is below 1, or more than the generators can read.
    """
    if not 1 <= high <= _HIGHEST:
        raise ValueError(f"{high} is not an upper half of a ledger id; it must lie between 1 and {_HIGHEST}")
    return f"{LONG_ID_GENERATOR}/HOB-{high:010d}"


def read_generator(coordination: CoordinationReader) -> IdGenerator:
    """Return the state of the generator; nothing is created.

    Args:
        coordination: session whose root is the ledgers root.

    Raises:
        StoreError: the store cannot be read.
    """
    short_next = _created(coordination, ID_GENERATOR)
    if not coordination.exists(LONG_ID_GENERATOR):
        return generator_state(short_next, None, lambda _: 0)
    names = coordination.children(LONG_ID_GENERATOR)
    return generator_state(short_next, names, lambda name: _created(coordination, f"{LONG_ID_GENERATOR}/{name}"))


def generator_state(short_next: int, names: Sequence[str] | None, low: Callable[[str], int]) -> IdGenerator:
    """Return the state of a generator on any store.

    Args:
        short_next: next id of the short generator.
        names: children of `/idgen-long`; None if that is missing.
        low: returns the next lower half beneath one of them.
    """
    if names is None:
        return IdGenerator(short_next if short_next < _LOW_END else 1 << 32, None, short_next)
    children = [(int(match[1]), name) for name in names if (match := _HIGH.fullmatch(name))]
    if not children:
        return IdGenerator(1 << 32, None, short_next)
    # Both generators use the highest child, whichever client created it.
    high, name = max(children)
    half = low(name)
    return IdGenerator(high << 32 | half if half < _LOW_END else (high + 1) << 32, high, short_next)


def raise_generator(coordination: Coordination, above: int) -> IdGenerator:
    """Raise the generator above an id; change nothing if it is above already.

    A generator cannot be lowered. A cluster that gets copies of another cluster's ledgers must be raised above the
    ids of that cluster. The call can be repeated, and run twice at once.

    Args:
        coordination: session whose root is the ledgers root.
        above: highest id that must not be used again.

    Returns:
        The state of the generator afterwards, as read back.

    Raises:
        StoreUnsupported: there is no ledgers root, or no id above this one.
        StoreConflict: other clients keep changing the generator.
        StoreError: the store cannot be read or written.
    """
    if not coordination.exists("/"):
        raise StoreUnsupported(f"there is no ledgers root at {coordination.url}; initialise the BookKeeper cluster")
    return raise_above(
        above,
        coordination.url,
        read=lambda: read_generator(coordination),
        create_high=lambda high: _create_high(coordination, high),
    )


def raise_above(
    above: int, url: StoreUrl, *, read: Callable[[], IdGenerator], create_high: Callable[[int], None]
) -> IdGenerator:
    """Raise a generator on any store above an id; see `raise_generator`."""
    state = read()
    for _ in range(_TRIES):
        if state.next_id > above:
            return state
        high = max(state.high or 0, above >> 32) + 1
        if high > _HIGHEST:
            raise StoreUnsupported(f"there are no ledger ids left above {_HIGHEST << 32} at {url}")
        create_high(high)
        # Read back: another client may have raised it less far at the same moment.
        state = read()
    raise StoreConflict(
        f"ids at {url} still begin at {state.next_id} where {above} is to be passed; others keep changing the "
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
        return  # another client was faster; the caller reads the state again


def _created(coordination: CoordinationReader, path: str) -> int:
    stat = coordination.exists(path)
    return created_children(stat.cversion, stat.num_children) if stat else 0
