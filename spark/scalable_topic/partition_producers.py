"""Producers of one segment's copy: one for each partition of the regular topic."""

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
from spark.scalable_topic.copy_record import PartitionProgress, StoredSum, position_of
from spark.scalable_topic.routing import Piece, Router, signed
from spark.scalable_topic.spec import CopyOut, producer_of
from spark.scalable_topic.sums import Sum, print_of

_KEEP_ALIVE_SECONDS = 5.0
_POLL_SECONDS = 0.05


class _PartitionWriter:
    """Writer of a segment's messages to one partition.

    Args:
        job: the copy.
        topic: name of the partition.
        name: name of the producer.
    """

    def __init__(self, job: CopyOut, topic: TopicName, name: str) -> None:
        self.topic = topic
        self._name = name
        self._position = EARLIEST
        self._sum = Sum()
        self._unrecorded: dict[int, bytes] = {}
        self.producer = RawProducer(
            job.brokers_url, topic, job.wire, name=name, notes=job.notes, on_stored=self._on_stored, exclusive=False
        )

    def resume(self, progress: PartitionProgress, unrecorded: dict[int, bytes]) -> None:
        """Continue after the record, with the messages that the partition has without a record."""
        self._position, self._sum, self._unrecorded = position_of(progress.place), progress.sum, unrecorded

    @property
    def progress(self) -> PartitionProgress:
        """Content of the partition, once everything is stored."""
        return PartitionProgress(place=self._position, **StoredSum.of(self._sum).model_dump())

    def take(self, piece: Piece, number: int) -> bool:
        """Send a piece unless it is there already; return whether it was.

        Raises:
            StoreConflict: the partition has something else there.
        """
        self._sum = self._sum.plus(piece.content)
        if not self._unrecorded:
            self.producer.send(signed(piece.message, self._name, number))
            return False
        if self._unrecorded.pop(number, None) != piece.content.digest:
            raise StoreConflict(
                f"{self.topic}: what an earlier attempt sent as {self._name} differs from what its segment has now; "
                "the segment has lost messages since, or another producer sent: copy to another target with the "
                "namespace's retention held"
            )
        return True

    def _on_stored(self, position: EntryPosition) -> None:
        self._position = position


class PartitionProducers(Closeable):
    """Producers of all partitions, which exclude those of other attempts for the segment.

    Args:
        job: the copy.
        segment_id: id of the segment.

    Raises:
        StoreContention: another attempt copies the segment.
        StoreError: a partition cannot be opened.
    """

    def __init__(self, job: CopyOut, segment_id: int) -> None:
        self._job = job
        self._name = producer_of(segment_id)
        self._router = Router(job.partitions, job.hashing)
        self._stack = ExitStack()
        self._due = time.monotonic() + _KEEP_ALIVE_SECONDS
        try:
            self._writers = [self._open(topic) for topic in job.parts]
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Close all producers."""
        self._stack.close()

    def ends(self) -> list[PartitionProgress]:
        """Return the ends of the partitions, for a segment of which nothing was sent."""
        return [PartitionProgress(place=end or EARLIEST) for end in self._stored_ends()]

    def resume(self, recorded: tuple[PartitionProgress, ...], sequence: int) -> None:
        """Find what an earlier attempt sent without a record, and continue after it.

        Args:
            recorded: progress in the record.
            sequence: first number without a record.

        Raises:
            StoreError: a partition cannot be read.
        """
        for writer, progress, end in zip(self._writers, recorded, self._stored_ends(), strict=True):
            sent = () if end is None else self._sent_since(writer.topic, position_of(progress.place), end)
            writer.resume(progress, {number: digest for number, digest in sent if number >= sequence})

    def take(self, piece: Piece, number: int) -> bool:
        """Send a piece unless it is there already; return whether it was. Raises as `RawProducer.send`."""
        if time.monotonic() >= self._due:
            self.keep_alive()
        return self._writers[piece.partition].take(piece, number)

    def keep_alive(self) -> None:
        """Answer the brokers' keep-alives."""
        for writer in self._writers:
            writer.producer.stay()
        self._due = time.monotonic() + _KEEP_ALIVE_SECONDS

    def flush(self) -> tuple[PartitionProgress, ...]:
        """Wait until everything is stored; return the progress by partition."""
        for writer in self._writers:
            writer.producer.flush()
        return tuple(writer.progress for writer in self._writers)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _open(self, topic: TopicName) -> _PartitionWriter:
        writer = _PartitionWriter(self._job, topic, self._name)
        self._stack.enter_context(writer.producer)
        return writer

    def _stored_ends(self) -> Iterator[EntryPosition | None]:
        """Yield the end of each partition, including what was in flight to it; None where it is empty."""
        with PulsarAdminReader.open(self._job.wire.admin, self._job.admin_urls) as admin:
            for writer in self._writers:
                _wait_until_stored(admin, writer.topic, self._job.wire.timeout)
                self.keep_alive()
                with self._reader(writer.topic, EARLIEST) as reader:
                    yield reader.last()

    def _sent_since(self, topic: TopicName, after: EntryPosition, end: EntryPosition) -> Iterator[tuple[int, bytes]]:
        """Yield number and digest of what this segment's producer sent after a position."""
        if end <= after:
            return
        with self._reader(topic, after) as reader:
            for _, message in reader.entries(end):
                if message.metadata.producer_name == self._name:
                    yield message.metadata.sequence_id, print_of(message, self._router.singles(message)).digest
                if time.monotonic() >= self._due:
                    self.keep_alive()

    def _reader(self, topic: TopicName, after: EntryPosition) -> RawReader:
        job = self._job
        return RawReader(job.brokers_url, topic, job.wire, after=after, notes=job.notes)


def _wait_until_stored(admin: PulsarAdminReader, topic: TopicName, limit: float) -> None:
    """Wait until everything is stored that is in flight to a topic now.

    A broker forgets a producer, and frees its name, as soon as its connection breaks, while bookies still store
    the last messages.

    Raises:
        StoreUnreachable: it takes longer than the limit.
    """
    until = time.monotonic() + limit
    stats = admin.topics.internal_stats(topic)
    due = stats.entries_added_counter + stats.pending_add_entries_count
    while stats.pending_add_entries_count and stats.entries_added_counter < due:
        if time.monotonic() > until:
            raise StoreUnreachable(f"{topic}: bookies take more than {limit:g} s to store what was sent; try again")
        time.sleep(_POLL_SECONDS)
        stats = admin.topics.internal_stats(topic)
