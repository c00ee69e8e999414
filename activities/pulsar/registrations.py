"""Registrations in a metadata store: brokers, bookies, and the participants of a migration."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from activities.lifecycle.context import Deadline
from clients.store import Partition, Record, StoreReader, name_of
from clients.stores import Access, open_reader
from models.lifecycle.failures import Blocker, summarize
from models.migration_flag import PARTICIPANTS
from models.store_url import StoreUrl

BROKERS = b"/loadbalance/brokers"
"""Parent of the brokers' registrations, which exist while their sessions live."""

_ABOVE_BROKERS = b"/loadbalance"

# Read-only bookies register below their own node; they still use the store.
_BOOKIES = (b"/ledgers/available", b"/ledgers/available/readonly")
# Ephemerals of a broker: its registration, its bundles, names of producers, and its participation in a migration of the
# metadata.
_HELD = (b"/loadbalance", b"/namespace", b"/counters", PARTICIPANTS.encode())


AWAY_SECONDS = 5.0
"""How long a running service may have no registration: it registers again after a lost session."""

_LOOK_EVERY = 0.5
_SHOWN = 10


class Service(NamedTuple):
    """A broker or bookie, with the session that holds its registration and the registration's data."""

    name: str
    owner: int
    data: bytes


def registered(reader: StoreReader) -> list[Service]:
    """Return the brokers and bookies that are registered in a store with a live session."""
    bookies = [bookie for path in _BOOKIES for bookie in _services(reader, b"bookie", path)]
    return brokers(reader) + bookies


def brokers(reader: StoreReader) -> list[Service]:
    """Return the brokers that are registered in their metadata store with a live session."""
    return _services(reader, b"broker", BROKERS)


def becomes_true(good: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true within `AWAY_SECONDS`: a registration may be missing for a moment."""
    deadline = Deadline(AWAY_SECONDS)
    while not good():
        if deadline.passed:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def persistent_registration(reader: StoreReader, parents: Sequence[bytes] = (BROKERS, *_BOOKIES)) -> Blocker | None:
    """Return a blocker for registrations that are not ephemeral; None without any.

    Such a node does not show whether its process runs: brokers 4.0.0 to 4.0.2 could create it after a lost session
    (#23889).

    Args:
        reader: of the store.
        parents: paths below which services register.
    """
    nodes = [node for path in parents for node in reader.read(reader.children(path))]
    paths = [
        node.path.decode(errors="backslashreplace")
        for node in nodes
        if isinstance(node, Record) and not node.owner and node.path.rpartition(b"/")[2] != b"readonly"
    ]
    if not paths:
        return None
    return Blocker(
        code="PERSISTENT_REGISTRATION",
        cause=f"no session owns {summarize(paths, shown=_SHOWN)}, so it is unknown whether these services run",
        cure="stop that broker or bookie if it runs, delete the node, and start the service again; it registers again",
    )


def brokers_mark(reader: StoreReader) -> int:
    """Return a number that changes whenever a broker registers or unregisters.

    ZooKeeper deletes the parent of the registrations when it is empty. Then the node above knows when that was: a
    parent that was missing before and is missing again may have been there in between.
    """
    nodes = reader.read([BROKERS, _ABOVE_BROKERS])
    return next((node.children_changed for node in nodes if isinstance(node, Record)), 0)


def none_since(reader: StoreReader, mark: int) -> bool:
    """Return whether no broker is registered, and none was, even briefly, since `brokers_mark` returned this mark."""
    return not brokers(reader) and brokers_mark(reader) == mark


def held_by_sessions(reader: StoreReader, sessions: Collection[int]) -> dict[int, bytes]:
    """Return those of these brokers' sessions that are still alive, each with one of its records."""
    if not sessions:
        return {}
    partition = Partition(singles=(), subtrees=_HELD, shard=-1, start=b"", end=b"")
    return {
        node.owner: node.path
        for batch in reader.scan(partition)
        for node in batch
        if isinstance(node, Record) and node.owner in sessions
    }


def still_registered(url: StoreUrl, access: Access) -> list[str]:
    """Return the names of the brokers and bookies with a live session in a store."""
    with open_reader(url, access) as reader:
        return [service.name for service in registered(reader)]


def still_in_use(reader: StoreReader) -> list[str]:
    """Return the users of a store: brokers and bookies by name, and other participants of a migration by session.

    Other participants open Pulsar's metadata store without a registration, for example a broker that is starting, an
    autorecovery daemon or a function worker.
    """
    services = registered(reader)
    others = participants(reader) - {service.owner for service in services}
    named = [service.name for service in services]
    return named + [f"a participant with session 0x{owner:x}" for owner in sorted(others)]


def participants(reader: StoreReader) -> set[int]:
    """Return the sessions of the services that take part in a migration (PIP-454, "Participant Registration")."""
    nodes = reader.read(reader.children(PARTICIPANTS.encode()))
    return {node.owner for node in nodes if isinstance(node, Record) and node.owner}


def _services(reader: StoreReader, kind: bytes, path: bytes) -> list[Service]:
    nodes = reader.read(reader.children(path))
    return [
        # Only ephemerals are services: `readonly` is a persistent child among the bookies.
        Service(f"{kind.decode()} {name_of(node.path)}", node.owner, node.value)
        for node in nodes
        if isinstance(node, Record) and node.owner
    ]
