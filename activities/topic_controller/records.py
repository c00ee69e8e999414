"""What the metadata store keeps of topics with a controller of ours, in the proposal's form under a root of our own.

```
/pulsar/pulsar-migrate/topics/{tenant}/{namespace}/{topic}                  the layout (`ControlledLayout`)
/pulsar/pulsar-migrate/topics/…/controller                                  who leads: the newest attempt
/pulsar/pulsar-migrate/topics/…/coordinator                                 who tells consumers what to read
/pulsar/pulsar-migrate/topics/…/subscriptions/{subscription}                {"type": "STREAM" or "QUEUE"}, or, while
                                                                            it is deleted, {"leaves": [0, 3]}
/pulsar/pulsar-migrate/topics/…/subscriptions/…/consumers/{consumer}        {"segments": [0, 3]}: the session
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import ValidationError

from activities.lifecycle.parallel import ItemMapper
from activities.topic_controller.lease import LeaderLease
from clients.cas.store import CasReader, CasStore, Check, Create, Delete, Node, Part, Set, remove_tree, retry
from clients.errors import StoreConflict, StoreUnsupported, VersionConflict
from clients.pulsar.names import TopicName
from models.base import faults
from models.segments.segment import SubscriptionKind
from models.topic_controller.record import ControlledLayout

ResultT = TypeVar("ResultT")

ROOT = "/pulsar/pulsar-migrate"

# Of one transaction: ZooKeeper takes a megabyte, and a note is some hundred bytes.
_TOGETHER = 200
# Whatever the version of a record is.
_ANY = -1


class Stored(NamedTuple):
    """The record of a topic, with the version of its node."""

    record: ControlledLayout
    version: int


def record_path(topic: TopicName) -> str:
    """The node of a topic's layout."""
    return f"{ROOT}{topic.scalable_path}"


def controller_path(topic: TopicName) -> str:
    """The node that says who leads a topic."""
    return f"{record_path(topic)}/controller"


def coordinator_path(topic: TopicName) -> str:
    """The node that says who tells a topic's consumers what to read."""
    return f"{record_path(topic)}/coordinator"


def read_record(store: CasReader, topic: TopicName) -> Stored | None:
    """The record of a topic; None where there is none, or only its controller.

    Raises:
        StoreConflict: it is no layout.
    """
    path = record_path(topic)
    node = store.get(path)
    if node is None or not node.value:
        return None
    try:
        return Stored(ControlledLayout.parse(node.value), node.version)
    except ValidationError as error:
        raise StoreConflict(
            f"{path} in {store.url} holds no layout ({faults(error)}); put the one of the layout topic back",
            server=str(store.url),
            path=path.encode(),
        ) from error


class Records:
    """The records of one topic, on behalf of the attempt that leads it.

    Args:
        store: the metadata store.
        topic: the scalable one.
        keeper: of the right to lead it.
    """

    def __init__(self, store: CasStore, topic: TopicName, keeper: LeaderLease) -> None:
        self._store = store
        self._topic = topic
        self._keeper = keeper

    def read(self) -> ControlledLayout | None:
        """The layout; None where the topic was never created, or is deleted."""
        found = read_record(self._store, self._topic)
        return found.record if found else None

    def create(self, record: ControlledLayout) -> ControlledLayout:
        """Write the first layout, unless there is one; returns what stands."""
        path = record_path(self._topic)

        def create() -> ControlledLayout:
            if found := self.read():
                return found
            self._keeper.require()
            # Beneath it is who leads, so the node itself may be there, and empty.
            if node := self._store.get(path):
                self._store.set(path, record.encode(), node.version)
            else:
                self._store.create(path, record.encode())
            return record

        return retry(create, path)

    def change(self, change: Callable[[ControlledLayout], ControlledLayout]) -> ControlledLayout:
        """Compare and set; the change is asked again with what stands then where somebody else came first.

        Raises:
            StoreConflict: there is no record.
            Superseded, ClaimHeld: another attempt leads.
        """
        path = record_path(self._topic)

        def replace() -> ControlledLayout:
            found = read_record(self._store, self._topic)
            if found is None:
                raise StoreConflict(f"{self._topic} has no layout: somebody has deleted {path} in {self._store.url}")
            new = change(found.record)
            if new != found.record:
                self._change(Set(path, new.encode(), found.version))
            return new

        return retry(replace, path)

    def subscriptions(self) -> dict[str, SubscriptionKind]:
        """Those that are registered, by name."""
        base = self._subscriptions
        found = {name: self._store.get(f"{base}/{name}") for name in self._store.children(base)}
        notes = {name: _subscription_note(node) for name, node in found.items()}
        return {name: SubscriptionKind(note["type"]) for name, note in notes.items() if "type" in note}

    def register(self, subscription: str, kind: SubscriptionKind) -> None:
        """Note a subscription; harmless when done twice.

        Raises:
            StoreConflict: it is there, and is consumed in another way.
        """
        known = self.subscriptions().get(subscription)
        if known is None:
            with suppress(VersionConflict):
                self._create(f"{self._subscriptions}/{subscription}", json.dumps({"type": kind.value}).encode())
            known = self.subscriptions().get(subscription)
        if known is not kind:
            raise StoreConflict(f"subscription {subscription} of {self._topic} is {known}, and not {kind}")

    def segments_in_deletion(self, subscription: str) -> tuple[int, ...] | None:
        """Ids of segments from which a subscription is being deleted; None where it is not."""
        note = _subscription_note(self._store.get(f"{self._subscriptions}/{subscription}"))
        return tuple(note["leaves"]) if "leaves" in note else None

    def note_deletion(self, subscription: str, segments: Iterable[int]) -> None:
        """Note that a subscription is being deleted from segments, and is none any more."""
        path, value = f"{self._subscriptions}/{subscription}", json.dumps({"leaves": sorted(segments)}).encode()

        def note() -> None:
            if node := self._store.get(path):
                self._change(Set(path, value, node.version))
            else:
                self._create(path, value)

        retry(note, path)

    def consumers(self, subscription: str) -> list[str]:
        """Consumers that have a session."""
        return self._store.children(f"{self._subscriptions}/{subscription}/consumers")

    def note_sessions(
        self, subscription: str, kept: Mapping[str, Sequence[int]], ended: Collection[str], each: ItemMapper
    ) -> None:
        """Note what consumers read, and delete the notes of those that left; harmless when done twice.

        Many at a time: each is some hundred bytes, and a thousand consumers come at once.

        Args:
            subscription: of the consumers.
            kept: ids of segments, by consumer.
            ended: consumers without a session.
            each: does the same for many items, where the store has no transactions.
        """
        base = f"{self._subscriptions}/{subscription}"
        values = {name: json.dumps({"segments": segments}).encode() for name, segments in kept.items()}
        names = [*values, *(name for name in ended if name not in kept)]
        for begin in range(0, len(names), _TOGETHER):
            some = {name: values.get(name) for name in names[begin : begin + _TOGETHER]}
            retry(lambda some=some: self._note(base, some, each), base)

    def _note(self, base: str, values: Mapping[str, bytes | None], each: ItemMapper) -> None:
        """Write the notes of some consumers, and delete those of the ones without a value."""
        subscription, consumers = self._store.get(base), f"{base}/consumers"
        if subscription is None or "type" not in _subscription_note(subscription):
            # Deleted meanwhile, and its consumers with it.
            return
        there = {*self._store.children(consumers)}
        parent = [] if there or self._store.get(consumers) else [Create(consumers)]
        parts = [part for name, value in values.items() if (part := _note_of(consumers, name, value, there))]
        if not parts:
            return
        with suppress(StoreUnsupported):
            self._store.transaction([self._keeper.guard(), Check(base, subscription.version), *parent, *parts])
            return
        each(parts, self._write_alone)

    def _write_alone(self, part: Part) -> None:
        """Write on the condition of what stood before the look at the fence: who is superseded then writes nothing."""
        node = self._store.get(part.path)
        self._keeper.require()
        match part:
            case Delete() if node is not None:
                self._store.delete(part.path, node.version)
            case Create(path, value) | Set(path, value) if node is None:
                self._store.create(path, value)
            case Create(path, value) | Set(path, value) if node is not None and node.value != value:
                self._store.set(path, value, node.version)
            case _:
                return

    def delete_subscription(self, subscription: str) -> None:
        """Delete the note of a subscription with its consumers; harmless where there is none."""
        self._remove(f"{self._subscriptions}/{subscription}")

    def delete_all(self) -> None:
        """Delete all that is noted of a topic that is gone; the right to lead it goes last."""
        self._remove(self._subscriptions)
        self._remove(coordinator_path(self._topic))
        path = record_path(self._topic)
        # It has a child while somebody leads, and cannot go before it.
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

    def _change(self, part: Create | Set | Delete) -> None:
        """Behind the fence, in one transaction with it where the store has such.

        ZooKeeper gives a record that is made again the versions of the one before, so these alone are no fence.
        """
        with suppress(StoreUnsupported):
            self._store.transaction([self._keeper.guard(), part])
            return
        self._keeper.require()
        match part:
            case Create(path, value):
                self._store.create(path, value)
            case Set(path, value, version):
                self._store.set(path, value, version)
            case Delete(path, version):
                self._store.delete(path, version)

    def _remove(self, path: str) -> None:
        def delete(record: str, version: int) -> None:
            self._change(Delete(record, version))

        # Notes of consumers may come meanwhile.
        retry(lambda: remove_tree(self._store, path, delete), path)


def _subscription_note(node: Node | None) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(node.value)) if node is not None and node.value else {}


def _note_of(consumers: str, name: str, value: bytes | None, there: Container[str]) -> Part | None:
    """What makes the note of a consumer what it is to be; only the coordinator, which has the fence, writes notes."""
    path = f"{consumers}/{name}"
    if value is not None:
        return Set(path, value, _ANY) if name in there else Create(path, value)
    return Delete(path, _ANY) if name in there else None
