"""What clients see: messages of a compacted topic, of which the newest of each key counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic
from activities.topic_controller.records import read_record
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.wire.access import NOTE
from clients.pulsar.wire.frames import framed
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.pulsar_api_pb2 import MessageMetadata
from models.topic_controller.record import ControlledLayout, PublishedLayout

LAYOUT = "layout"
"""Key of the messages with the layout."""

_PRODUCER = "pulsar-migrate-controller"
# Late clients read all layouts since the last compaction.
_COMPACT_EVERY = 16


class Told(NamedTuple):
    """One message.

    Attributes:
        key: what it is about.
        content: JSON.
    """

    key: str
    content: bytes


def publish(task: ControllerTask) -> ControlledLayout:
    """Publish the layout as it stands, and return it.

    It is read when no earlier attempt can send any more, so that clients never see an older one behind a newer one.

    Raises:
        StoreConflict: there is none.
        StoreError: the topic cannot be written to.
    """
    read: list[ControlledLayout] = []

    def newest() -> list[Told]:
        if (found := read_record(task.metadata, task.name)) is None:
            raise StoreConflict(f"{task.name} has no layout to publish")
        read.append(found.record)
        return [Told(LAYOUT, PublishedLayout.of(found.record).encode())]

    send(task, newest)
    if read[-1].epoch % _COMPACT_EVERY == 0:
        # One may be under way.
        with suppress(AdminConflict):
            task.admin.topics.compact(layout_topic(task.name))
    return read[-1]


def send(task: ControllerTask, build: Callable[[], Sequence[Told]]) -> None:
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
