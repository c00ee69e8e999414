"""The producers of one segment's copy: one for each partition of the regular topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from clients.closeable import Closeable
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from clients.pulsar.wire.producer import RawProducer
from clients.pulsar.wire.reader import RawReader
from spark.scalable_topic.copy_record import Lane, StoredSum, place_of
from spark.scalable_topic.routing import Piece, Router, signed
from spark.scalable_topic.spec import CopyOut, producer_of
from spark.scalable_topic.sums import Sum, print_of

_STAY_EVERY = 5.0
_LOOK_EVERY = 0.05


class _PartLane:
    """What of a segment goes to one partition.

    Args:
        job: the copy.
        topic: the partition.
        name: of the producer.
    """

    def __init__(self, job: CopyOut, topic: TopicName, name: str) -> None:
        self.topic = topic
        self._name = name
        self._place = EARLIEST
        self._sum = Sum()
        self._found: dict[int, bytes] = {}
        self.producer = RawProducer(
            job.brokers_url, topic, job.wire, name=name, notes=job.notes, on_stored=self._on_stored, exclusive=False
        )

    def begin(self, lane: Lane, found: dict[int, bytes]) -> None:
        """Continue behind what is recorded, with what is in the partition without a record."""
        self._place, self._sum, self._found = place_of(lane.place), lane.sum, found

    @property
    def state(self) -> Lane:
        """What is in the partition, once all is stored."""
        return Lane(place=self._place, **StoredSum.of(self._sum).model_dump())

    def take(self, piece: Piece, number: int) -> bool:
        """Send a piece, unless it is there; returns whether it was.

        Raises:
            StoreConflict: what is there is something else.
        """
        self._sum = self._sum.plus(piece.content)
        if not self._found:
            self.producer.send(signed(piece.message, self._name, number))
            return False
        if self._found.pop(number, None) != piece.content.digest:
            raise StoreConflict(
                f"{self.topic}: what an earlier attempt sent as {self._name} is not what its segment holds now; the "
                "segment has lost messages since, or somebody else sent: delete the target, and copy again with the "
                "namespace's retention held"
            )
        return True

    def _on_stored(self, place: EntryPosition) -> None:
        self._place = place


class Lanes(Closeable):
    """All partitions, with producers that no other attempt for the segment can be beside.

    Args:
        job: the copy.
        segment_id: the segment.

    Raises:
        StoreContention: another attempt copies the segment.
        StoreError: a partition cannot be opened.
    """

    def __init__(self, job: CopyOut, segment_id: int) -> None:
        self._job = job
        self._name = producer_of(segment_id)
        self._router = Router(job.partitions, job.hashing)
        self._stack = ExitStack()
        self._due = time.monotonic() + _STAY_EVERY
        try:
            self._lanes = [self._open(topic) for topic in job.parts]
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Leave the partitions to others."""
        self._stack.close()

    def ends(self) -> list[Lane]:
        """Where the partitions end, for a segment of which nothing was sent."""
        return [Lane(place=end or EARLIEST) for end in self._stored_ends()]

    def begin(self, recorded: tuple[Lane, ...], sequence: int) -> None:
        """Find what an earlier attempt sent without a record.

        Args:
            recorded: what the record says.
            sequence: the first number of which it says nothing.

        Raises:
            StoreError: a partition cannot be read.
        """
        for part, lane, end in zip(self._lanes, recorded, self._stored_ends(), strict=True):
            sent = () if end is None else self._sent_since(part.topic, place_of(lane.place), end)
            part.begin(lane, {number: digest for number, digest in sent if number >= sequence})

    def take(self, piece: Piece, number: int) -> bool:
        """Send a piece, unless it is there; returns whether it was. Raises as `RawProducer.send`."""
        if time.monotonic() >= self._due:
            self.stay()
        return self._lanes[piece.partition].take(piece, number)

    def stay(self) -> None:
        """Answer the brokers' keep-alives."""
        for lane in self._lanes:
            lane.producer.stay()
        self._due = time.monotonic() + _STAY_EVERY

    def flush(self) -> tuple[Lane, ...]:
        """Wait until all is stored; returns what is where."""
        for lane in self._lanes:
            lane.producer.flush()
        return tuple(lane.state for lane in self._lanes)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _open(self, topic: TopicName) -> _PartLane:
        lane = _PartLane(self._job, topic, self._name)
        self._stack.enter_context(lane.producer)
        return lane

    def _stored_ends(self) -> Iterator[EntryPosition | None]:
        """Where each partition ends, with all that was on its way to it; None where it is empty."""
        with PulsarAdminReader.open(self._job.wire.admin, self._job.admin_urls) as admin:
            for lane in self._lanes:
                _await_stored(admin, lane.topic, self._job.wire.timeout)
                self.stay()
                with self._reader(lane.topic, EARLIEST) as reader:
                    yield reader.last()

    def _sent_since(self, topic: TopicName, after: EntryPosition, end: EntryPosition) -> Iterator[tuple[int, bytes]]:
        """What this segment's producer sent behind a place: number and digest."""
        if end <= after:
            return
        with self._reader(topic, after) as reader:
            for _, one in reader.entries(end):
                if one.metadata.producer_name == self._name:
                    yield one.metadata.sequence_id, print_of(one, self._router.singles(one)).digest
                if time.monotonic() >= self._due:
                    self.stay()

    def _reader(self, topic: TopicName, after: EntryPosition) -> RawReader:
        job = self._job
        return RawReader(job.brokers_url, topic, job.wire, after=after, notes=job.notes)


def _await_stored(admin: PulsarAdminReader, topic: TopicName, limit: float) -> None:
    """Wait until all is stored that is on its way to a topic now.

    A producer whose connection broke is gone for its broker at once, and with it the name, while bookies still store
    what it sent last.

    Raises:
        StoreUnreachable: it takes too long.
    """
    until = time.monotonic() + limit
    stats = admin.topics.internal_stats(topic)
    due = stats.entries_added_counter + stats.pending_add_entries_count
    while stats.pending_add_entries_count and stats.entries_added_counter < due:
        if time.monotonic() > until:
            raise StoreUnreachable(f"{topic}: bookies take more than {limit:g} s to store what was sent; try again")
        time.sleep(_LOOK_EVERY)
        stats = admin.topics.internal_stats(topic)
