"""Brokers that are away, or have to go: who they were, since when clients are without one, and whether they have gone.

Kept beside the progress of the switch, so that an attempt which comes after a crash counts from the same moment, and
looks at the ports of brokers that it has never seen registered itself.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlsplit

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import progress_path
from activities.pulsar.registrations import Service, held_by_sessions
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import StoreReader
from models.bookie_cluster.input import Direction
from models.lifecycle.base import Result

NODE = "brokers"

# How old a look may be that a later attempt takes for the last one with all brokers there.
_LOOK_EVERY = 5.0
_CONNECT = 1.0
# A proxy with nothing behind it accepts a connection, and closes it at once; a frozen process holds it.
_HOLD = 0.3
_PORTS_AT_ONCE = 16


class SeenBroker(Result):
    """A broker as it was registered: its name, the session that held that, and `host:port` of all that it offers."""

    name: str
    session: int
    addresses: tuple[str, ...]

    @staticmethod
    def of(service: Service) -> SeenBroker:
        """What a registration says."""
        return SeenBroker(name=service.name, session=service.owner, addresses=_addresses(service.data))


class Absence(Result):
    """What is known of the brokers of one direction.

    Attributes:
        run: the run of the migration that wrote it.
        since: the first moment at which clients may have been without a broker; None while all are there.
        looked: when brokers were looked at last, to within some seconds.
        brokers: all that were seen.
        most: how many of them there were at one time.
    """

    run: str
    since: datetime | None = None
    looked: datetime
    brokers: tuple[SeenBroker, ...] = ()
    most: int = 0

    @property
    def names(self) -> frozenset[str]:
        """Of the brokers that were seen."""
        return frozenset(broker.name for broker in self.brokers)


class AbsenceKeeper:
    """The brokers of one step that has them stopped.

    Args:
        task: the step.
        registry: opened on behalf of its attempt, which holds the claim.
    """

    def __init__(self, task: BookieClusterTask, registry: BookieRegistry) -> None:
        self._registry = registry
        self._path = f"{progress_path(task, task.direction)}/{NODE}"
        known = read_absences(task, registry)
        mine = known.get(task.direction)
        # What a run of before left belongs to a stop of before; its brokers may be there all the same.
        self._others = [broker for one in known.values() for broker in one.brokers]
        self.seen = mine if mine and mine.run == task.run_id else Absence(run=task.run_id, looked=_now())

    def order(self) -> None:
        """Brokers are told to stop from now on.

        Raises:
            StoreConflict: the claim is lost.
        """
        self._keep(self.seen.model_copy(update={"since": self.seen.since or _now()}))

    def look(self, running: Sequence[Service], *, ordered: bool) -> None:
        """Remember who is registered now.

        Args:
            running: the registered brokers.
            ordered: brokers were told to stop, so that one that is there says nothing of its clients.

        Raises:
            StoreConflict: the claim is lost.
        """
        seen, now = self.seen, _now()
        there = {service.name: SeenBroker.of(service) for service in running}
        brokers = {broker.name: broker for broker in seen.brokers} | there
        since = seen.since
        if not ordered:
            gone = not there or brokers.keys() - there.keys()
            # The last time that all were seen: nobody looked when they went.
            since = (since or seen.looked) if gone else None
        most = max(seen.most, len(there))
        new = seen.model_copy(update={"since": since, "brokers": tuple(brokers.values()), "most": most})
        if new != seen or (now - seen.looked).total_seconds() > _LOOK_EVERY:
            self._keep(new.model_copy(update={"looked": now}))

    def lingering(self, store: StoreReader) -> list[str]:
        """What is left of brokers that are registered no more; empty if nothing.

        A broker that stops in good order takes its registration back first, and serves on until topics are unloaded.

        Raises:
            StoreError: the brokers' metadata store cannot be read.
        """
        known = [*self._others, *self.seen.brokers]
        sessions = {broker.session: broker.name for broker in known}
        held = held_by_sessions(store, sessions.keys())
        left = [f"{sessions[session]} still holds {path.decode(errors='replace')}" for session, path in held.items()]
        addresses = {address: broker.name for broker in known for address in broker.addresses}
        return left + [f"{addresses[address]} still answers at {address}" for address in _serving(addresses)]

    def _keep(self, new: Absence) -> None:
        self._registry.put(self._path, new.model_dump_json().encode())
        self.seen = new


def read_absences(task: BookieClusterTask, registry: BookieRegistry) -> dict[Direction, Absence]:
    """What is known of the brokers of both directions.

    Raises:
        StoreError: the registry cannot be read.
    """
    nodes = {way: registry.store.get(f"{progress_path(task, way)}/{NODE}") for way in Direction}
    return {way: Absence.model_validate_json(node.value) for way, node in nodes.items() if node}


def _addresses(data: bytes) -> tuple[str, ...]:
    """`host:port` of every listener in a broker's registration."""
    try:
        found = json.loads(data)
    except ValueError:
        return ()
    texts: list[str] = []
    fields: list[Any] = [found]
    while fields:
        one = fields.pop()
        if isinstance(one, dict):
            # `protocols` and `lastStats` hold no addresses, and what looks like one elsewhere is one.
            fields += cast("dict[str, Any]", one).values()
        elif isinstance(one, str) and "://" in one:
            texts.append(one)
    return tuple(sorted({address for text in texts if (address := _address(text))}))


def _address(text: str) -> str:
    try:
        host, port = urlsplit(text).hostname, urlsplit(text).port
    except ValueError:
        return ""
    return f"{host}:{port}" if host and port else ""


def _serving(addresses: Iterable[str]) -> list[str]:
    """The addresses at which somebody takes connections and holds them."""
    known = sorted(addresses)
    with ThreadPoolExecutor(_PORTS_AT_ONCE) as pool:
        answers = list(pool.map(_serves, known))
    return [address for address, serves in zip(known, answers, strict=True) if serves]


def _serves(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), timeout=_CONNECT)
    except OSError:
        return False
    with connection:
        connection.settimeout(_HOLD)
        try:
            return bool(connection.recv(1))
        except TimeoutError:
            return True
        except OSError:
            return False


def _now() -> datetime:
    return datetime.now(UTC)
