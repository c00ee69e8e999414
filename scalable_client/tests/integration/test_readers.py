"""Readers of sealed segments, from a time and from a place on, through pulsar-client."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.stack import Stack
from pulsar_scalable.controlled.backend import Reader, last_position
from pulsar_scalable.controlled.library import Library, close_quietly, pulsar
from pulsar_scalable.options import ClientOptions
from pulsar_scalable.ports import Start

TOPIC = TopicName.parse("persistent://public/default/sealed-segment")
MESSAGES = 40
ROUNDS = 2
# A reader that waits for an answer that went with its connection waits for 10 s.
SOON = 9.0


@dataclass
class Sealed:
    """A sealed segment.

    Attributes:
        library: makes clients of its broker.
        times: when its messages were published, in milliseconds since 1970.
        places: serialised ids of its messages.
    """

    library: Library
    times: list[int]
    places: list[bytes]

    def read(self, start: Start) -> list[int]:
        """Return the numbers of all messages from a start position on."""
        reader = Reader(self.library, str(TOPIC), start)
        numbers: list[int] = []
        while reader.has_message_available():
            numbers.append(int(reader.read_next(5000).data()))
        reader.close()
        return numbers


@pytest.fixture(scope="module", params=[True, False])
def sealed(stack: Stack, admin: PulsarAdmin, request: pytest.FixtureRequest) -> Generator[Sealed]:
    """In batches, and not."""
    library = Library(stack.broker_url, ClientOptions())
    producer = library.shared.create_producer(str(TOPIC), batching_enabled=request.param)
    ids: list[bytes] = []

    def on_stored(result: Any, place: Any) -> None:
        assert result == pulsar.Result.Ok
        ids.append(place.serialize())

    for number in range(MESSAGES):
        producer.send_async(str(number).encode(), on_stored)
        if number % 4 == 3:
            producer.flush()
            # The times of entries must differ.
            time.sleep(0.005)
    producer.close()
    admin.topics.terminate(TOPIC)
    reader = library.shared.create_reader(str(TOPIC), pulsar.MessageId.earliest)
    times = [reader.read_next(5000).publish_timestamp() for _ in range(MESSAGES)]
    # At the end of a terminated topic its connection may break.
    close_quietly(reader)
    yield Sealed(library, times, ids)
    library.close()
    admin.topics.delete(TOPIC, force=True)


def test_from_a_time_on(sealed: Sealed) -> None:
    """Messages since a time are read completely, but none of an earlier entry; each attempt is answered soon."""
    for number in [*range(0, MESSAGES, 4)] * ROUNDS:
        begun = time.monotonic()
        assert sealed.read(Start(time_ms=sealed.times[number])) == list(range(number, MESSAGES))
        assert time.monotonic() - begun < SOON
    assert sealed.read(Start(time_ms=sealed.times[-1] + 60_000)) == []
    assert sealed.read(Start(time_ms=sealed.times[0] - 60_000)) == list(range(MESSAGES))


def test_from_a_place_on(sealed: Sealed) -> None:
    """Messages after the position are read, also those of the same batch."""
    for number in range(0, MESSAGES, 3):
        assert sealed.read(Start(after=sealed.places[number])) == list(range(number + 1, MESSAGES))


def test_the_end(sealed: Sealed) -> None:
    """The last message is found."""
    assert last_position(sealed.library, str(TOPIC)) == sealed.places[-1]
