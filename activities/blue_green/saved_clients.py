"""Clients that a namespace's topics had before the flip, stored in blue's metadata store.

The first node holds the list, or names the slot with the chunks of a long list, so that the list is replaced
atomically. Each write uses the version that was read before the fence, so that a late attempt changes nothing.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from pydantic import TypeAdapter, ValidationError

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.topics import check_topic
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreContention, StoreProtocolError, VersionConflict
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.compression import inflated
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients, clients_record

_CLIENTS = TypeAdapter(dict[str, TopicClients])
# ZooKeeper accepts less than a megabyte in one node.
_CHUNK = 400_000
_WHOLE = b"whole:"
_PARTS = b"parts:"
_SLOTS = ("a", "b")
_NAMED_PARTS = re.compile(_PARTS + rb"([ab])(\d{1,4})")


def save_clients(store: CasStore, guard: NamespaceGuard, clients: Mapping[TopicName, TopicClients]) -> None:
    """Store the clients of a namespace's topics.

    Raises:
        StoreContention: another attempt writes at the same time.
    """
    plain = {str(topic): users.model_dump(exclude_defaults=True) for topic, users in clients.items()}
    packed = zlib.compress(json.dumps(plain, separators=(",", ":")).encode())
    path = clients_record(guard.namespace, "0")
    head = store.get(path)
    value = _WHOLE + packed
    if len(packed) > _CHUNK:
        # Write to the slot that is not in use; the current list stays valid until the first node names the new slot.
        # mutant: blue-green/parts-of-the-list-that-counts-are-overwritten
        slot = _SLOTS[bool(head and head.value.startswith(_PARTS + b"a"))]
        chunks = [packed[at : at + _CHUNK] for at in range(0, len(packed), _CHUNK)]
        for number, chunk in enumerate(chunks):
            chunk_path = clients_record(guard.namespace, f"{slot}{number}")
            node = store.get(chunk_path)
            _write(store, guard.require, chunk_path, chunk, node.version if node else None)
        value = _PARTS + f"{slot}{len(chunks)}".encode()
    _write(store, guard.require, path, value, head.version if head else None)


def saved_clients(store: CasReader, namespace: str) -> dict[str, TopicClients]:
    """Return the clients that a namespace's topics had before the flip, by the topic's full name.

    Raises:
        StoreProtocolError: another client changed the list.
    """
    path = clients_record(namespace, "0")
    head = store.get(path)
    if head is None:
        return {}
    if head.value.startswith(_PARTS):
        named = _NAMED_PARTS.fullmatch(head.value)
        if named is None:
            raise _damaged(path)
        slot = named[1].decode()
        nodes = [store.get(clients_record(namespace, f"{slot}{number}")) for number in range(int(named[2]))]
        packed = b"".join(node.value for node in nodes if node)
    elif head.value.startswith(_WHOLE):
        packed = head.value[len(_WHOLE) :]
    else:
        packed = b"".join(_chunks_of_old_format(store, namespace))
    try:
        return _CLIENTS.validate_json(inflated(packed)) if packed else {}
    except ValidationError:
        raise _damaged(path) from None


def _damaged(path: str) -> StoreProtocolError:
    text = f"{path} is not a list of clients of this version; check which client wrote it"
    return StoreProtocolError(text, path=path.encode())


def forget_clients(store: CasStore, namespace: str, fence: Callable[[], object]) -> None:
    """Delete the list that `save_clients` stored."""
    for slot in ("", *_SLOTS):
        number = 0
        while node := store.get(path := clients_record(namespace, f"{slot}{number}")):
            fence()
            with _expected(path):
                store.delete(path, node.version)
            number += 1


def _write(store: CasStore, fence: Callable[[], object], path: str, value: bytes, version: int | None) -> None:
    fence()
    with _expected(path):
        if version is None:
            store.create(path, value)
        else:
            store.set(path, value, version)


@contextmanager
def _expected(path: str) -> Generator[None]:
    try:
        yield
    except VersionConflict as cause:
        raise StoreContention(f"another attempt changes {path}", path=path.encode()) from cause


def _chunks_of_old_format(store: CasReader, namespace: str) -> Iterable[bytes]:
    """Yield the chunks that earlier versions wrote: numbered nodes, up to an empty one."""
    number = 0
    while (node := store.get(clients_record(namespace, str(number)))) and node.value:
        yield node.value
        number += 1


def clients_of(stats: TopicStats) -> TopicClients:
    """Return the clients of a topic, with durable subscriptions only: a reader's subscription ends with the reader."""
    durable = stats.durable_subscriptions
    return TopicClients(
        producers=tuple(sorted(publisher.producer_name for publisher in stats.publishers)),
        consumers={name: len(sub.consumers) for name, sub in durable.items()},
        properties={name: sub.subscription_properties for name, sub in durable.items() if sub.subscription_properties},
        replicated=tuple(name for name, sub in durable.items() if sub.is_replicated),
    )


def note_consumers(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Note subscriptions that got consumers after LOAD, so that their backlog is not skipped as idle."""
    for guard in guards:
        before = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
        states = task.each(before, lambda topic: check_topic(task.blue.admin, topic))
        now = {state.topic: clients_of(state.stats) for state in states if state.stats}
        after = {topic: _with_consumers(clients, now.get(topic, TopicClients())) for topic, clients in before.items()}
        if after != before:
            save_clients(store, guard, after)


def _with_consumers(before: TopicClients, now: TopicClients) -> TopicClients:
    consumers = {name: count or now.consumers.get(name, 0) for name, count in before.consumers.items()}
    return before.model_copy(update={"consumers": consumers})
