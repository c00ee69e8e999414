"""Records of controlled topics in the metadata store, in the form of PIP-468, under a root of our own.

```
/pulsar/pulsar-migrate/topics/{tenant}/{namespace}/{topic}                  the layout (`ControlledLayout`)
/pulsar/pulsar-migrate/topics/…/controller                                  lease for changes of the topic
/pulsar/pulsar-migrate/topics/…/coordinator                                 lease for assignments of consumers
/pulsar/pulsar-migrate/topics/…/subscriptions/{subscription}                {"type": "STREAM" or "QUEUE"}, or, during
                                                                            its deletion, {"leaves": [0, 3]}
/pulsar/pulsar-migrate/topics/…/subscriptions/…/consumers/{consumer}        {"segments": [0, 3]}: the session
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from activities.lifecycle.parallel import ItemMapper
from activities.topic_controller.lease import LeaderLease
from clients.cas.store import CasReader, CasStore, Check, Create, Delete, Node, Part, Set, remove_tree, retry
from clients.errors import StoreConflict, StoreUnsupported, VersionConflict
from clients.json_text import read_object
from clients.pulsar.names import TopicName
from models.base import faults
from models.segments.segment import SubscriptionKind
from models.topic_controller.record import ROOT, ControlledLayout

ResultT = TypeVar("ResultT")

# Consumers of one transaction: ZooKeeper allows a megabyte, and a record has some hundred bytes.
_BATCH_SIZE = 200
# Any version of a record.
_ANY = -1


class StoredRecord(NamedTuple):
    """The record of a topic, with the version of its node."""

    record: ControlledLayout
    version: int


def record_path(topic: TopicName) -> str:
    """Return the path of a topic's layout."""
    return f"{ROOT}{topic.scalable_path}"


def controller_path(topic: TopicName) -> str:
    """Return the path of the lease under which a topic is changed."""
    return f"{record_path(topic)}/controller"


def coordinator_path(topic: TopicName) -> str:
    """Return the path of the lease under which a topic's assignments are published."""
    return f"{record_path(topic)}/coordinator"


def read_record(store: CasReader, topic: TopicName) -> StoredRecord | None:
    """Return the record of a topic; None if there is none, or only a lease.

    Raises:
        StoreConflict: it contains no valid layout.
    """
    path = record_path(topic)
    node = store.get(path)
    if node is None or not node.value:
        return None
    try:
        return StoredRecord(ControlledLayout.parse(node.value), node.version)
    except ValidationError as error:
        raise StoreConflict(
            f"{path} in {store.url} contains no valid layout ({faults(error)}); restore it from the layout topic",
            server=str(store.url),
            path=path.encode(),
        ) from error


class Records:
    """The records of one topic, for an attempt that holds the lease.

    Args:
        store: the metadata store.
        topic: the scalable topic.
        keeper: lease of the topic.
    """

    def __init__(self, store: CasStore, topic: TopicName, keeper: LeaderLease) -> None:
        self._store = store
        self._topic = topic
        self._keeper = keeper

    def read(self) -> ControlledLayout | None:
        """Return the layout; None if the topic was never created, or is deleted."""
        stored = read_record(self._store, self._topic)
        return stored.record if stored else None

    def create(self, record: ControlledLayout) -> ControlledLayout:
        """Write the first layout, unless there is one; return the current one."""
        path = record_path(self._topic)

        def create() -> ControlledLayout:
            if existing := self.read():
                return existing
            self._keeper.require()
            # The lease is a child of the node, so the node may exist without a value.
            if node := self._store.get(path):
                self._store.set(path, record.encode(), node.version)
            else:
                self._store.create(path, record.encode())
            return record

        return retry(create, path)

    def change(self, change: Callable[[ControlledLayout], ControlledLayout]) -> ControlledLayout:
        """Apply a change by compare-and-set; it is applied again to the new layout after a concurrent change.

        Raises:
            StoreConflict: there is no record.
            Superseded, ClaimHeld: another attempt holds the lease.
        """
        path = record_path(self._topic)

        def replace() -> ControlledLayout:
            stored = read_record(self._store, self._topic)
            if stored is None:
                raise StoreConflict(f"{self._topic} has no layout: {path} in {self._store.url} was deleted")
            new = change(stored.record)
            if new != stored.record:
                self._change(Set(path, new.encode(), stored.version))
            return new

        return retry(replace, path)

    def subscriptions(self) -> dict[str, SubscriptionKind]:
        """Return the registered subscriptions, by name."""
        base = self._subscriptions
        nodes = {name: self._store.get(f"{base}/{name}") for name in self._store.children(base)}
        notes = {name: _subscription_note(node) for name, node in nodes.items()}
        return {name: SubscriptionKind(note["type"]) for name, note in notes.items() if "type" in note}

    def register(self, subscription: str, kind: SubscriptionKind) -> None:
        """Register a subscription; idempotent.

        Raises:
            StoreConflict: it exists with another kind.
        """
        registered = self.subscriptions().get(subscription)
        if registered is None:
            with suppress(VersionConflict):
                self._create(f"{self._subscriptions}/{subscription}", json.dumps({"type": kind.value}).encode())
            registered = self.subscriptions().get(subscription)
        if registered is not kind:
            raise StoreConflict(f"subscription {subscription} of {self._topic} is {registered}, and not {kind}")

    def segments_in_deletion(self, subscription: str) -> tuple[int, ...] | None:
        """Return the ids of segments from which a subscription is being deleted; None if it is not being deleted."""
        note = _subscription_note(self._store.get(f"{self._subscriptions}/{subscription}"))
        return tuple(note["leaves"]) if "leaves" in note else None

    def note_deletion(self, subscription: str, segments: Iterable[int]) -> None:
        """Record that a subscription is being deleted from segments, and is no longer registered."""
        path, value = f"{self._subscriptions}/{subscription}", json.dumps({"leaves": sorted(segments)}).encode()

        def note() -> None:
            if node := self._store.get(path):
                self._change(Set(path, value, node.version))
            else:
                self._create(path, value)

        retry(note, path)

    def consumers(self, subscription: str) -> list[str]:
        """Return the names of the consumers that have a session."""
        return self._store.children(f"{self._subscriptions}/{subscription}/consumers")

    def note_sessions(
        self, subscription: str, assigned: Mapping[str, Sequence[int]], ended: Collection[str], each: ItemMapper
    ) -> None:
        """Store the assignments of consumers, and delete the records of ended sessions; idempotent.

        It works in batches: a record has some hundred bytes, and a thousand consumers may come at once.

        Args:
            subscription: subscription of the consumers.
            assigned: ids of segments, by consumer.
            ended: consumers without a session.
            each: maps items concurrently, where the store has no transactions.
        """
        base = f"{self._subscriptions}/{subscription}"
        values = {name: json.dumps({"segments": segments}).encode() for name, segments in assigned.items()}
        names = [*values, *(name for name in ended if name not in assigned)]
        for start in range(0, len(names), _BATCH_SIZE):
            batch = {name: values.get(name) for name in names[start : start + _BATCH_SIZE]}
            retry(lambda batch=batch: self._note(base, batch, each), base)

    def _note(self, base: str, values: Mapping[str, bytes | None], each: ItemMapper) -> None:
        """Write the records of consumers, and delete those of consumers without a value."""
        subscription, consumers = self._store.get(base), f"{base}/consumers"
        if subscription is None or "type" not in _subscription_note(subscription):
            # It was deleted since then, together with its consumers.
            return
        existing = {*self._store.children(consumers)}
        parent = [] if existing or self._store.get(consumers) else [Create(consumers)]
        operations = [
            operation
            for name, value in values.items()
            if (operation := _session_change(consumers, name, value, existing))
        ]
        if not operations:
            return
        with suppress(StoreUnsupported):
            self._store.transaction([self._keeper.guard(), Check(base, subscription.version), *parent, *operations])
            return
        each(operations, self._write_alone)

    def _write_alone(self, operation: Part) -> None:
        """Write under the version from before the lease check: a superseded attempt then writes nothing."""
        node = self._store.get(operation.path)
        self._keeper.require()
        match operation:
            case Delete() if node is not None:
                self._store.delete(operation.path, node.version)
            case Create(path, value) | Set(path, value) if node is None:
                self._store.create(path, value)
            case Create(path, value) | Set(path, value) if node is not None and node.value != value:
                self._store.set(path, value, node.version)
            case _:
                return

    def delete_subscription(self, subscription: str) -> None:
        """Delete the record of a subscription with its consumers; idempotent."""
        self._remove(f"{self._subscriptions}/{subscription}")

    def delete_all(self) -> None:
        """Delete all records of a deleted topic; the lease goes last."""
        self._remove(self._subscriptions)
        self._remove(coordinator_path(self._topic))
        path = record_path(self._topic)
        # While the lease exists, the node has a child and cannot be deleted, so clear it.
        if (node := self._store.get(path)) and node.value:
            self._change(Set(path, b"", node.version))
        self._keeper.release()

    @property
    def _subscriptions(self) -> str:
        return f"{record_path(self._topic)}/subscriptions"

    def _create(self, path: str, value: bytes) -> None:
        """Create a subscription's record, with the parent that a transaction does not make."""
        if self._store.get(self._subscriptions) is None:
            self._keeper.require()
            with suppress(VersionConflict):
                self._store.create(self._subscriptions, b"")
        self._change(Create(path, value))

    def _change(self, operation: Create | Set | Delete) -> None:
        """Write if the lease is held, in one transaction with its check where the store has transactions.

        Versions alone are not enough: a node that is created again in ZooKeeper starts with the same versions.
        """
        with suppress(StoreUnsupported):
            self._store.transaction([self._keeper.guard(), operation])
            return
        self._keeper.require()
        match operation:
            case Create(path, value):
                self._store.create(path, value)
            case Set(path, value, version):
                self._store.set(path, value, version)
            case Delete(path, version):
                self._store.delete(path, version)

    def _remove(self, path: str) -> None:
        def delete(record: str, version: int) -> None:
            self._change(Delete(record, version))

        # Records of consumers may be added in between.
        retry(lambda: remove_tree(self._store, path, delete), path)


def _subscription_note(node: Node | None) -> dict[str, Any]:
    return read_object(node.value, "the record of a subscription") if node is not None and node.value else {}


def _session_change(consumers: str, name: str, value: bytes | None, existing: Container[str]) -> Part | None:
    """Return the write that stores or deletes the record of a consumer; only the holder of the lease writes these."""
    path = f"{consumers}/{name}"
    if value is not None:
        return Set(path, value, _ANY) if name in existing else Create(path, value)
    return Delete(path, _ANY) if name in existing else None
