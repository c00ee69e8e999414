"""Who used the topics of a namespace before its flip, in blue's metadata store, in as many nodes as it takes.

One node is the list, or says where its parts are: so a list is replaced at once, however many parts it has. Each write
is made at the version that was read before the fence, so that a late attempt changes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from pydantic import TypeAdapter

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.topics import check_topic
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreContention, VersionConflict
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients, clients_record

_CLIENTS = TypeAdapter(dict[str, TopicClients])
# ZooKeeper takes less than a megabyte in one node.
_PART = 400_000
_WHOLE = b"whole:"
_PARTS = b"parts:"
_SLOTS = ("a", "b")


def save_clients(store: CasStore, guard: NamespaceGuard, clients: Mapping[TopicName, TopicClients]) -> None:
    """Keep who uses the topics of a namespace.

    Raises:
        StoreContention: another attempt does the same.
    """
    plain = {str(topic): one.model_dump(exclude_defaults=True) for topic, one in clients.items()}
    packed = zlib.compress(json.dumps(plain, separators=(",", ":")).encode())
    path = clients_record(guard.namespace, "0")
    head = store.get(path)
    value = _WHOLE + packed
    if len(packed) > _PART:
        # The parts of the list that counts stay as they are until the node names the others.
        # mutant: blue-green/parts-of-the-list-that-counts-are-overwritten
        slot = _SLOTS[bool(head and head.value.startswith(_PARTS + b"a"))]
        parts = [packed[at : at + _PART] for at in range(0, len(packed), _PART)]
        for number, part in enumerate(parts):
            part_path = clients_record(guard.namespace, f"{slot}{number}")
            node = store.get(part_path)
            _write(store, guard.require, part_path, part, node.version if node else None)
        value = _PARTS + f"{slot}{len(parts)}".encode()
    _write(store, guard.require, path, value, head.version if head else None)


def saved_clients(store: CasReader, namespace: str) -> dict[str, TopicClients]:
    """Return who used the topics of a namespace before its flip, by the topic's full name."""
    head = store.get(clients_record(namespace, "0"))
    if head is None:
        return {}
    if head.value.startswith(_PARTS):
        slot, count = head.value[len(_PARTS) :].decode()[0], int(head.value[len(_PARTS) + 1 :])
        nodes = [store.get(clients_record(namespace, f"{slot}{number}")) for number in range(count)]
        packed = b"".join(node.value for node in nodes if node)
    elif head.value.startswith(_WHOLE):
        packed = head.value[len(_WHOLE) :]
    else:
        packed = b"".join(_older_parts(store, namespace))
    return _CLIENTS.validate_json(zlib.decompress(packed)) if packed else {}


def forget_clients(store: CasStore, namespace: str, fence: Callable[[], object]) -> None:
    """Remove what `save_clients` kept."""
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


def _older_parts(store: CasReader, namespace: str) -> Iterable[bytes]:
    """Return the parts as earlier versions wrote them: one after the other, up to an empty one."""
    number = 0
    while (node := store.get(clients_record(namespace, str(number)))) and node.value:
        yield node.value
        number += 1


def clients_of(stats: TopicStats) -> TopicClients:
    """Who uses a topic: durable subscriptions only, since a reader's ends with the reader."""
    durable = stats.durable_subscriptions
    return TopicClients(
        producers=tuple(sorted(publisher.producer_name for publisher in stats.publishers)),
        consumers={name: len(sub.consumers) for name, sub in durable.items()},
        properties={name: found for name, sub in durable.items() if (found := sub.subscription_properties)},
        replicated=tuple(name for name, sub in durable.items() if sub.is_replicated),
    )


def note_consumers(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Note subscriptions that have got consumers since LOAD: what they have left is not given up as idle."""
    for guard in guards:
        before = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
        looks = task.each(before, lambda topic: check_topic(task.blue, topic))
        now = {look.topic: clients_of(look.stats) for look in looks if look.stats}
        after = {topic: _with_consumers(clients, now.get(topic, TopicClients())) for topic, clients in before.items()}
        if after != before:
            save_clients(store, guard, after)


def _with_consumers(before: TopicClients, now: TopicClients) -> TopicClients:
    consumers = {name: count or now.consumers.get(name, 0) for name, count in before.consumers.items()}
    return before.model_copy(update={"consumers": consumers})
