"""Publication to clients, in a compacted topic: the newest message of each key counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pydantic import ValidationError

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic
from activities.topic_controller.records import read_record, record_path
from activities.topic_controller.segments import create_layout_topic, has_own_layout_topic
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.wire.access import NOTE
from clients.pulsar.wire.frames import framed
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.reader import RawReader
from models.topic_controller.record import ControlledLayout, PublishedLayout
from pulsar_wire.pulsar_api_pb2 import MessageMetadata

LAYOUT = "layout"
"""Key of the messages with the layout."""

_PRODUCER = "pulsar-migrate-controller"
# Epochs. New clients read all layouts since the last compaction.
_COMPACT_EVERY = 16
# Least seconds between two compactions.
_COMPACTION_INTERVAL = 30.0


class KeyedMessage(NamedTuple):
    """A message of the compacted topic.

    Attributes:
        key: its key.
        content: JSON; empty deletes the key.
    """

    key: str
    content: bytes


def ensure_layout_topic(task: ControllerTask) -> None:
    """Create the layout topic, unless it is there with our policies.

    If an operator deletes it and a client auto-creates it, it has no retention.
    """
    if not has_own_layout_topic(task):
        create_layout_topic(task)


def publish(task: ControllerTask, *, ready: bool = False) -> ControlledLayout:
    """Publish the current layout, and return it.

    The layout is read once no earlier attempt can send any more, so that clients never see an older one after a newer
    one.

    Args:
        task: an attempt of the controller.
        ready: whether `ensure_layout_topic` was called.

    Raises:
        StoreConflict: the topic has no layout.
        StoreError: the layout topic cannot be written to.
    """
    published: list[ControlledLayout] = []

    def build() -> list[KeyedMessage]:
        if (stored := read_record(task.metadata, task.name)) is None:
            raise StoreConflict(f"{task.name} has no layout to publish")
        published.append(stored.record)
        return [KeyedMessage(LAYOUT, PublishedLayout.of(stored.record).encode())]

    if not ready:
        ensure_layout_topic(task)
    send(task, build)
    epoch = published[-1].epoch
    if epoch and epoch % _COMPACT_EVERY == 0:
        compact(task)
    return published[-1]


def require_latest_layout(task: ControllerTask, record: ControlledLayout) -> None:
    """Check that clients have no newer layout than the record: they would ignore the older one.

    Raises:
        StoreConflict: they have; an old record was restored.
        StoreError: the layout topic cannot be read.
    """
    epochs = (layout.epoch for layout in _published_layouts(task) if layout.created_ms == record.created_ms)
    require_epoch(task, record, max(epochs, default=record.epoch))


def require_epoch(task: ControllerTask, record: ControlledLayout, newest: int) -> None:
    """Check that a record is not older than the newest known layout: clients would ignore it.

    Raises:
        StoreConflict: it is older; an old record was restored.
    """
    if record.epoch < newest:
        raise StoreConflict(f"{task.metadata.url}, {record_path(task.name)}: {record.too_old(newest)}")


def _published_layouts(task: ControllerTask) -> list[PublishedLayout]:
    """Return the layouts in the layout topic that are not compacted away."""
    name, wire = layout_topic(task.name), task.runtime.wire_of(task.input.credentials)
    if not has_own_layout_topic(task):
        # A topic that clients have auto-created after a deletion contains nothing of ours.
        return []
    layouts: list[PublishedLayout] = []
    with RawReader(task.service_url(), name, wire, compacted=True, notes={NOTE: task.attempt.workflow_id}) as reader:
        last = reader.last()
        for _, message in reader.entries(last) if last else ():
            # Others may have written to the topic; a valid layout follows.
            with suppress(ValidationError):
                if message.metadata.partition_key == LAYOUT:
                    layouts.append(PublishedLayout.model_validate_json(message.payload))
    return layouts


def compact(task: ControllerTask) -> None:
    """Start a compaction of the layout topic, which runs in its broker, unless the last one was a short time ago.

    If two compactions follow each other within a second, the broker persists the second one a minute later. If it is
    killed before that, the topic can neither be read nor deleted. Seen once; single tries on 4.0.8, 4.2.4 and 5.0.1
    did not show it.
    """
    name = layout_topic(task.name)
    last = task.admin.topics.stats(name).compaction.last_compaction_succeed_timestamp
    if time.time() - last / 1000 < _COMPACTION_INTERVAL:
        return
    # One may be running.
    with suppress(AdminConflict):
        task.admin.topics.compact(name)


def send(task: ControllerTask, build: Callable[[], Sequence[KeyedMessage]]) -> None:
    """Send messages as the topic's only producer.

    Args:
        task: an attempt of the controller.
        build: returns the messages; called once no earlier attempt can send any more.

    Raises:
        StoreError: the topic cannot be written to, or another attempt has taken over.
    """
    name, wire = layout_topic(task.name), task.runtime.wire_of(task.input.credentials)
    notes = {NOTE: task.attempt.workflow_id}
    with RawProducer(
        task.service_url(), name, wire, name=_PRODUCER, notes=notes, on_stored=lambda _position: None
    ) as producer:
        messages = build()
        task.require()
        for sequence_id, message in enumerate(messages):
            metadata = MessageMetadata(
                producer_name=_PRODUCER,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                partition_key=message.key,
                uncompressed_size=len(message.content),
            )
            producer.send(framed(metadata, message.content))
        producer.flush()
