"""Records of scalable topics in the brokers' metadata store, read where they write it (PIP-468, "Metadata").

The admin interface fails for bad records, and a broker works with what it read at its start. A repair needs the current
record, so it is read from the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote_plus

from pydantic import ValidationError

from clients.cas.store import CasReader, CasStore, Check, Create, Delete, Set, retry
from clients.errors import StoreConflict, StoreUnsupported
from clients.json_text import read_json, read_object
from clients.pulsar.admin.topics import is_brokers_cursor
from clients.pulsar.names import StoredTopic, TopicName
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind

Fence = Callable[[], Check]
"""Raises if another attempt has taken over; returns a check by which the store refuses a late write."""


class RecordState(StrEnum):
    """State of the record of a topic.

    EMPTY: a broker reported the load of a segment before the record was written, or after it was deleted; a client
    that asks brokers for the topic gets errors (5.0.1).
    """

    ABSENT = "absent"
    EMPTY = "empty"
    BROKEN = "broken"
    GOOD = "good"


class ScalableRecord(NamedTuple):
    """The record of a topic.

    Attributes:
        state: of the record.
        layout: what it holds, where that is good.
        version: of the node; -1 where there is none.
    """

    state: RecordState
    layout: SegmentLayout | None = None
    version: int = -1


def read_scalable(store: CasReader, topic: TopicName) -> ScalableRecord:
    """Return the record of a topic, in whatever state it is."""
    node = store.get(topic.scalable_path)
    if node is None:
        return ScalableRecord(RecordState.ABSENT)
    if not node.value:
        return ScalableRecord(RecordState.EMPTY, version=node.version)
    try:
        return ScalableRecord(RecordState.GOOD, SegmentLayout.parse(node.value), node.version)
    except ValidationError:
        return ScalableRecord(RecordState.BROKEN, version=node.version)


def unreadable(topic: TopicName, state: RecordState) -> str:
    """Return the defect of a record without a layout that this version can read.

    One with a value may be of a newer release, and of a topic that is in use: no message says to delete it.
    """
    if state is RecordState.BROKEN:
        return (
            f"{topic.scalable_path} in the metadata store holds what this version of pulsar-migrate cannot read. If "
            "brokers can, it is of a newer release: use a newer pulsar-migrate, and leave the node as it is"
        )
    return f"{topic.scalable_path} in the metadata store is {state}, and brokers fail whenever they are asked for it"


def clear_empty(store: CasStore, topic: TopicName, fence: Fence) -> None:
    """Remove the empty record of a topic, with all nodes beneath it: it stops brokers from writing a good one.

    Args:
        store: the brokers' metadata store.
        topic: whose record it is.
        fence: see `Fence`.

    Raises:
        StoreContention: brokers write beneath it again and again.
    """

    def clear() -> None:
        record = read_scalable(store, topic)
        if record.state is RecordState.EMPTY:  # mutant: scalable-topic/an-empty-record-stays
            _remove(store, topic.scalable_path, record.version, fence)

    retry(clear, topic.scalable_path)


def remove_record(
    store: CasStore, topic: TopicName, version: int, fence: Fence, require: Callable[[], object] = lambda: None
) -> None:
    """Remove the record of a topic with all beneath it, if it is still the one that was read.

    Args:
        store: the brokers' metadata store.
        topic: whose record it is.
        version: of the record that was read.
        fence: see `Fence`.
        require: raises where what is beneath it must stay; asked before each try.

    Raises:
        StoreConflict: the record has changed.
        StoreContention: brokers write beneath it again and again.
    """
    path = topic.scalable_path

    def remove() -> None:
        node = store.get(path)
        if node is None:
            return
        if node.version != version:
            raise StoreConflict(f"the record of {topic} has changed while it was removed; start again")
        require()
        _remove(store, path, version, fence)

    retry(remove, path)


def controller_of(store: CasReader, topic: TopicName) -> str | None:
    """Return the broker that is the topic's controller, `host:port` of its admin interface; None where no broker is."""
    node = store.get(controller_path(topic))
    return None if node is None else str(read_json(node.value))


def controller_path(topic: TopicName) -> str:
    """Return the node that the topic's controller holds while its session lasts."""
    return f"{topic.scalable_path}/controller"


def set_while_none_leads(store: CasStore, topic: TopicName, layout: SegmentLayout, version: int) -> None:
    """Write the record unless a broker leads the topic; on Oxia, without transactions, only the version is checked.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        layout: what the record must hold.
        version: of the record that was read.

    Raises:
        VersionConflict: it has changed since, or a broker leads the topic.
    """
    path, seat, value = topic.scalable_path, controller_path(topic), layout.encode()
    with suppress(StoreUnsupported):
        store.transaction([Create(seat), Set(path, value, version), Delete(seat, -1)])
        return
    store.set(path, value, version)


def recorded_subscriptions(store: CasReader, topic: TopicName) -> dict[str, SubscriptionKind | None]:
    """Return the subscriptions that have a record, by name, with its kind; None if only consumers made it."""
    base = f"{topic.scalable_path}/subscriptions"
    return {name: _kind(store, f"{base}/{name}") for name in store.children(base)}


def cursors_on(store: CasReader, stored: StoredTopic) -> list[str]:
    """Return durable subscriptions that have a cursor on what holds messages, as its managed ledger names them."""
    names = map(unquote_plus, store.children(stored.managed_ledger_path))
    return [name for name in names if not is_brokers_cursor(name)]


def subscription_path(topic: TopicName, subscription: str) -> str:
    """Return the node of a subscription's record; unlike those of topics, these names are not encoded (5.0.1)."""
    return f"{topic.scalable_path}/subscriptions/{subscription}"


def keep_subscription(
    store: CasStore, topic: TopicName, subscription: str, kind: SubscriptionKind, fence: Fence
) -> None:
    """Ensure that a registered subscription has its record, also where a consumer of it came first.

    If a consumer connects first, the broker creates the node without a value. A later request to register the
    subscription writes nothing, and ZooKeeper deletes the node with its last consumer, even after a value is written:
    brokers forget the subscription and all that it has not consumed (5.0.1). So the node and its children are deleted,
    and it is created again. The broker remembers the consumers itself.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        subscription: its name.
        kind: what the record says.
        fence: see `Fence`.

    Raises:
        StoreConflict: it is not registered.
        StoreContention: consumers come and go too fast.
    """
    path = subscription_path(topic, subscription)

    def keep() -> None:
        node = store.get(path)
        if node is None:
            raise StoreConflict(f"{subscription} of {topic} has no record after a broker said that it was registered")
        if not node.value:  # mutant: scalable-topic/records-of-consumers-alone-stay
            removals = [*_removals(store, path, node.version)]
            record = Create(path, json.dumps({"type": kind.value}).encode())
            store.transaction([fence(), *removals, record])

    retry(keep, path)


def _remove(store: CasStore, path: str, version: int, fence: Fence) -> None:
    """Remove what was read before the fence is asked, and nothing that comes later."""
    delete_fenced(store, [*_removals(store, path, version)], fence)


def delete_fenced(store: CasStore, parts: Sequence[Delete], fence: Fence) -> None:
    """Delete records that have these versions, unless another attempt is in charge.

    Raises:
        VersionConflict: one has changed.
    """
    try:
        store.transaction([fence(), *parts])  # mutant: scalable-topic/records-are-removed-late
    except StoreUnsupported:
        # Such a store gives no version twice (Oxia), so that none of these can hit a record that was made later.
        for chunk in parts:
            fence()
            store.delete(chunk.path, chunk.version)


def _removals(store: CasReader, path: str, version: int) -> Iterator[Delete]:
    for child in (f"{path}/{name}" for name in store.children(path)):
        if node := store.get(child):
            yield from _removals(store, child, node.version)
    yield Delete(path, version)


def _kind(store: CasReader, path: str) -> SubscriptionKind | None:
    node = store.get(path)
    if node is None or not node.value:
        return None
    return SubscriptionKind(read_object(node.value, path, path=path.encode())["type"])
