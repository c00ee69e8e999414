"""Who is at work on a metadata store: brokers, bookies, and the participants of a migration."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from activities.lifecycle.context import Deadline
from clients.store import Partition, Record, StoreReader
from clients.stores import Access, open_reader
from models.lifecycle.failures import Blocker, some
from models.migration_flag import PARTICIPANTS
from models.store_url import StoreUrl

BROKERS = b"/loadbalance/brokers"
"""Where brokers register; each has a child while its session lives."""

# Read-only bookies register in a node of their own; they still use the store.
_BOOKIES = (b"/ledgers/available", b"/ledgers/available/readonly")
# What a broker holds as long as its session lives: its registration, its bundles, its producers' names, its part in a
# migration of the metadata.
_HELD = (b"/loadbalance", b"/namespace", b"/counters", PARTICIPANTS.encode())


AWAY_SECONDS = 5.0
"""How long a service that lives may be without its registration: it registers again after each lost session."""

_LOOK_EVERY = 0.5
_SHOWN = 10


class Service(NamedTuple):
    """A broker or bookie, with the session that holds its registration and the registration's data."""

    name: str
    owner: int
    data: bytes


def registered(reader: StoreReader) -> list[Service]:
    """The brokers and bookies that are registered in a store, each with a live session."""
    found = [brokers(reader)] + [_services(reader, b"bookie", path) for path in _BOOKIES]
    return [service for services in found for service in services]


def brokers(reader: StoreReader) -> list[Service]:
    """The brokers that are registered in their metadata store, each with a live session."""
    return _services(reader, b"broker", BROKERS)


def becomes_true(good: Callable[[], bool]) -> bool:
    """Return whether something becomes true within `AWAY_SECONDS`, so that no one moment decides who is registered."""
    deadline = Deadline(AWAY_SECONDS)
    while not good():
        if deadline.passed:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def persistent_registration(reader: StoreReader, parents: Sequence[bytes] = (BROKERS, *_BOOKIES)) -> Blocker | None:
    """Return a blocker for registrations that no session holds; None without any.

    Such a node says nothing about its process, which may be alive: brokers 4.0.0 to 4.0.2 could register so after a
    lost session (#23889).

    Args:
        reader: reads the store.
        parents: paths below which services register.
    """
    nodes = [node for path in parents for node in reader.read(reader.children(path))]
    found = [
        node.path.decode(errors="backslashreplace")
        for node in nodes
        if isinstance(node, Record) and not node.owner and node.path.rpartition(b"/")[2] != b"readonly"
    ]
    if not found:
        return None
    return Blocker(
        code="PERSISTENT_REGISTRATION",
        cause=f"no session holds {some(found, shown=_SHOWN)}, so nothing shows whether these services live",
        cure="stop that broker or bookie if it runs, delete the node, and start the service again; it registers again",
    )


def brokers_mark(reader: StoreReader) -> int:
    """A number that changes whenever a broker registers or goes."""
    (found,) = reader.read([BROKERS])
    return found.children_changed if isinstance(found, Record) else 0


def none_since(reader: StoreReader, mark: int) -> bool:
    """Whether no broker is registered, and none was, however shortly, since `brokers_mark` gave this mark."""
    return not brokers(reader) and brokers_mark(reader) == mark


def held_by_sessions(reader: StoreReader, sessions: Collection[int]) -> dict[int, bytes]:
    """Which of these sessions of brokers still live, each with one of the records that it holds."""
    if not sessions:
        return {}
    part = Partition(singles=(), subtrees=_HELD, shard=-1, start=b"", end=b"")
    return {
        node.owner: node.path
        for batch in reader.scan(part)
        for node in batch
        if isinstance(node, Record) and node.owner in sessions
    }


def still_registered(url: StoreUrl, access: Access) -> list[str]:
    """Names of the brokers and bookies with a live session in a store."""
    with open_reader(url, access) as reader:
        return [service.name for service in registered(reader)]


def still_in_use(reader: StoreReader) -> list[str]:
    """Return what uses a store now: brokers and bookies by name, and other participants of a migration by session.

    Other participants are what opens Pulsar's metadata store and registers nothing, such as a broker that starts, an
    autorecovery daemon or a function worker.
    """
    services = registered(reader)
    others = participants(reader) - {service.owner for service in services}
    named = [service.name for service in services]
    return named + [f"a participant with session 0x{owner:x}" for owner in sorted(others)]


def participants(reader: StoreReader) -> set[int]:
    """Sessions of the services that take part in a migration (PIP-454, "Participant Registration")."""
    nodes = reader.read(reader.children(PARTICIPANTS.encode()))
    return {node.owner for node in nodes if isinstance(node, Record) and node.owner}


def _services(reader: StoreReader, kind: bytes, path: bytes) -> list[Service]:
    nodes = reader.read(reader.children(path))
    return [
        # Only what a session holds is a service: `readonly` is a persistent child among the bookies.
        Service((kind + b" " + node.path.rpartition(b"/")[2]).decode(), node.owner, node.value)
        for node in nodes
        if isinstance(node, Record) and node.owner
    ]
