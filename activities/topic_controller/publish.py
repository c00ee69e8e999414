"""What clients see: messages of a compacted topic, of which the newest of each key counts."""

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
# Late clients read all layouts since the last compaction.
_COMPACT_EVERY = 16
# Seconds between two compactions.
_APART = 30.0


class KeyedMessage(NamedTuple):
    """One message.

    Attributes:
        key: what it is about.
        content: JSON.
    """

    key: str
    content: bytes


def ensure_layout_topic(task: ControllerTask) -> None:
    """See that the topic of the layout is the one that was made for it.

    Whoever deleted it, or let a client make it, took what keeps it.
    """
    if not has_own_layout_topic(task):
        create_layout_topic(task)


def publish(task: ControllerTask, *, ready: bool = False) -> ControlledLayout:
    """Publish the layout as it stands, and return it.

    It is read when no earlier attempt can send any more, so that clients never see an older one behind a newer one.

    Args:
        task: an attempt of the controller.
        ready: whether `ensure_layout_topic` was called.

    Raises:
        StoreConflict: there is none.
        StoreError: the topic cannot be written to.
    """
    read: list[ControlledLayout] = []

    def newest() -> list[KeyedMessage]:
        if (found := read_record(task.metadata, task.name)) is None:
            raise StoreConflict(f"{task.name} has no layout to publish")
        read.append(found.record)
        return [KeyedMessage(LAYOUT, PublishedLayout.of(found.record).encode())]

    if not ready:
        ensure_layout_topic(task)
    send(task, newest)
    epoch = read[-1].epoch
    if epoch and epoch % _COMPACT_EVERY == 0:
        compact(task)
    return read[-1]


def require_latest_layout(task: ControllerTask, record: ControlledLayout) -> None:
    """See that clients have no newer layout than the record, which would lead nobody: they never go back in epoch.

    Raises:
        StoreConflict: they have; somebody has put an old record back.
        StoreError: the topic of the layout cannot be read.
    """
    epochs = (
        told_layout.epoch for told_layout in _published_layouts(task) if told_layout.created_ms == record.created_ms
    )
    if (newest := max(epochs, default=record.epoch)) > record.epoch:
        raise StoreConflict(f"{task.metadata.url}, {record_path(task.name)}: {record.too_old(newest)}")


def _published_layouts(task: ControllerTask) -> list[PublishedLayout]:
    """Layouts that clients were told, without those that were compacted away."""
    name, wire = layout_topic(task.name), task.runtime.wire_of(task.input.credentials)
    if not has_own_layout_topic(task):
        # What clients make behind a deletion holds nothing of ours.
        return []
    found: list[PublishedLayout] = []
    with RawReader(task.service_url(), name, wire, compacted=True, notes={NOTE: task.attempt.workflow_id}) as reader:
        last = reader.last()
        for _, one in reader.entries(last) if last else ():
            # What others have written there is none, and a good one comes behind it.
            with suppress(ValidationError):
                if one.metadata.partition_key == LAYOUT:
                    found.append(PublishedLayout.model_validate_json(one.payload))
    return found


def compact(task: ControllerTask) -> None:
    """Leave the newest message of each key alone; brokers do that beside what else they do.

    Not soon after another one: of two that follow each other within a second a broker notes the second one a minute
    later, and if it is killed until then, the topic can neither be read nor deleted any more. Seen once; one try each
    on 4.0.8, 4.2.4 and 5.0.1 did not show it.
    """
    name = layout_topic(task.name)
    last = task.admin.topics.stats(name).compaction.last_compaction_succeed_timestamp
    if time.time() - last / 1000 < _APART:
        return
    # One may be under way.
    with suppress(AdminConflict):
        task.admin.topics.compact(name)


def send(task: ControllerTask, build: Callable[[], Sequence[KeyedMessage]]) -> None:
    """Send messages as the topic's only producer.

    Args:
        task: an attempt of the controller.
        build: gives the messages; called when no earlier attempt can send any more.

    Raises:
        StoreError: the topic cannot be written to, or another attempt has come meanwhile.
    """
    name, wire = layout_topic(task.name), task.runtime.wire_of(task.input.credentials)
    notes = {NOTE: task.attempt.workflow_id}
    with RawProducer(
        task.service_url(), name, wire, name=_PRODUCER, notes=notes, on_stored=lambda _place: None
    ) as producer:
        messages = build()
        task.require()
        for number, one in enumerate(messages):
            metadata = MessageMetadata(
                producer_name=_PRODUCER,
                sequence_id=number,
                publish_time=time.time_ns() // 1_000_000,
                partition_key=one.key,
                uncompressed_size=len(one.content),
            )
            producer.send(framed(metadata, one.content))
        producer.flush()
