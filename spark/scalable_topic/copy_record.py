"""Progress of the copy of a scalable topic, in the metadata store.

Messages are in the regular topic before a record says so. What an attempt copied without a record is found there by
the name of its producer.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from clients.cas.store import CasReader, CasStore, write_alone
from clients.errors import StoreConflict
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from models.base import faults
from models.lifecycle.claim import CLAIM
from models.scalable_topic.copies import KeyHash
from spark.scalable_topic.sums import Sum

RecordT = TypeVar("RecordT", bound="Stored")


class Stored(BaseModel):
    """Base of these records; unknown fields are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def encode(self) -> bytes:
        """Return the record's value."""
        return self.model_dump_json().encode()


class StoredSum(Stored):
    """Stored sum.

    Attributes:
        messages: number of messages.
        size: bytes of their payloads.
        digest: digest of their contents, in hexadecimal.
    """

    messages: int = 0
    size: int = 0
    digest: str = bytes(16).hex()

    @classmethod
    def of(cls, total: Sum) -> StoredSum:
        """Return a sum in its stored form."""
        return cls(messages=total.messages, size=total.size, digest=total.digest.hex())

    @property
    def sum(self) -> Sum:
        """The sum in memory."""
        return Sum(self.messages, self.size, bytes.fromhex(self.digest))


class PartitionProgress(StoredSum):
    """Messages of a segment in one partition.

    Attributes:
        place: position in the partition up to which every message of the segment has a record.
    """

    place: tuple[int, int] = EARLIEST


class SegmentRecord(Stored):
    """Progress of the copy of a segment.

    Attributes:
        segment: descriptor of the segment.
        created_ms: time of its creation.
        at: position in the segment up to which everything is copied.
        sequence: number of the next piece.
        entries: number of copied entries.
        complete: whether everything is copied, and no message can be sent to the segment any more.
        partitions: progress by partition.
    """

    segment: str
    created_ms: int
    at: tuple[int, int] = EARLIEST
    sequence: int = 0
    entries: int = 0
    complete: bool = False
    partitions: tuple[PartitionProgress, ...]


class PartRecord(Stored):
    """Progress of the check of the regular topic, or of one of its partitions.

    Attributes:
        after: position up to which everything was read.
        sums: sums of what was read, by segment.
    """

    after: tuple[int, int] = EARLIEST
    sums: dict[int, StoredSum] = {}


class CopyRecord(Stored):
    """Description of a copy.

    Attributes:
        source: the scalable topic, `tenant/namespace/topic`.
        partitions: number of partitions of the regular topic; 0 for none.
        hashing: how its producers choose a partition for a key.
        pruned: ids of segments that brokers had pruned before the copy started.
        parents: parents of each segment, as first seen.
    """

    source: str
    partitions: int
    hashing: KeyHash
    pruned: tuple[int, ...] = ()
    parents: dict[int, tuple[int, ...]] = {}


def record_path(target: TopicName) -> str:
    """Return the path of the record of a copy, next to the claim."""
    return f"{CLAIM}-copies-out/{target.namespace_path}/{quote(target.topic, safe='')}"


def segment_path(target: TopicName, segment_id: int) -> str:
    """Return the path of a segment's record."""
    return f"{record_path(target)}/segments/{segment_id}"


def part_path(target: TopicName, number: int) -> str:
    """Return the path of a partition's record."""
    return f"{record_path(target)}/parts/{number}"


class RecordVersion(NamedTuple):
    """Path and version of a record, which the next change compares.

    Attributes:
        path: path of the record.
        version: version that was read; None for a new record.
    """

    path: str
    version: int | None


def read_stored(store: CasReader, kind: type[RecordT], path: str) -> tuple[RecordT | None, RecordVersion]:
    """Return a record, or None, with its path and version.

    Raises:
        StoreConflict: the value is not such a record.
    """
    node = store.get(path)
    if node is None:
        return None, RecordVersion(path, None)
    try:
        return kind.model_validate_json(node.value), RecordVersion(path, node.version)
    except ValidationError as error:
        raise StoreConflict(f"{path} in {store.url} is not a record of a copy ({faults(error)}); delete it") from error


def write_stored(store: CasStore, version: RecordVersion, record: Stored) -> RecordVersion:
    """Write a record unless another attempt has changed it since it was read; return its path and new version.

    Raises:
        StoreContention: another attempt has changed it.
    """
    return RecordVersion(version.path, write_alone(store, version.path, record.encode(), version.version))


def position_of(stored: tuple[int, int]) -> EntryPosition:
    """Return a position from its stored form."""
    return EntryPosition(*stored)
