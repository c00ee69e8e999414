"""How far the copy of a scalable topic is, in the metadata store.

Messages are in the regular topic before a record says so: what an attempt copied without a record of it is found there
by the name of its producer.
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
    """Base of these records: fields that we do not know survive."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def encode(self) -> bytes:
        """The record's value."""
        return self.model_dump_json().encode()


class StoredSum(Stored):
    """A sum.

    Attributes:
        messages: how many.
        size: bytes of their payloads.
        digest: of their contents, in hexadecimal.
    """

    messages: int = 0
    size: int = 0
    digest: str = bytes(16).hex()

    @classmethod
    def of(cls, one: Sum) -> StoredSum:
        """A sum, as it is stored."""
        return cls(messages=one.messages, size=one.size, digest=one.digest.hex())

    @property
    def sum(self) -> Sum:
        """The sum."""
        return Sum(self.messages, self.size, bytes.fromhex(self.digest))


class Lane(StoredSum):
    """What of a segment is in one partition.

    Attributes:
        place: nothing of the segment that has no record is there up to and with this place of the partition.
    """

    place: tuple[int, int] = EARLIEST


class SegmentRecord(Stored):
    """How far the copy of a segment is.

    Attributes:
        segment: its descriptor.
        created_ms: when it came to be.
        at: the place of the segment up to and with which all is copied.
        sequence: the number that the next piece gets.
        entries: that are copied.
        complete: whether all of it is copied, and nothing can be sent to it any more.
        lanes: what is where, by partition.
    """

    segment: str
    created_ms: int
    at: tuple[int, int] = EARLIEST
    sequence: int = 0
    entries: int = 0
    complete: bool = False
    lanes: tuple[Lane, ...]


class PartRecord(Stored):
    """What was read of the regular topic, or of one partition, to prove the copy.

    Attributes:
        after: the place up to and with which all was read.
        sums: of that, by segment.
    """

    after: tuple[int, int] = EARLIEST
    sums: dict[int, StoredSum] = {}


class CopyRecord(Stored):
    """What is copied where.

    Attributes:
        source: the scalable topic, `tenant/namespace/topic`.
        partitions: of the regular topic; 0 for none.
        hashing: how its producers choose a partition for a key.
        pruned: ids of segments that brokers had pruned when the copy began.
        parents: of each segment that was seen, as it was seen first.
    """

    source: str
    partitions: int
    hashing: KeyHash
    pruned: tuple[int, ...] = ()
    parents: dict[int, tuple[int, ...]] = {}


def record_path(target: TopicName) -> str:
    """The path of the record of a copy, next to the claim."""
    return f"{CLAIM}-copies-out/{target.namespace_path}/{quote(target.topic, safe='')}"


def segment_path(target: TopicName, segment_id: int) -> str:
    """The path of a segment's record."""
    return f"{record_path(target)}/segments/{segment_id}"


def part_path(target: TopicName, number: int) -> str:
    """The path of a partition's record."""
    return f"{record_path(target)}/parts/{number}"


class Held(NamedTuple):
    """Where a record stands: what the next change compares.

    Attributes:
        path: of the record.
        version: as it was read; None where there was none.
    """

    path: str
    version: int | None


def read_stored(store: CasReader, kind: type[RecordT], path: str) -> tuple[RecordT | None, Held]:
    """A record, or None; and where it stands.

    Raises:
        StoreConflict: it is no such record.
    """
    node = store.get(path)
    if node is None:
        return None, Held(path, None)
    try:
        return kind.model_validate_json(node.value), Held(path, node.version)
    except ValidationError as error:
        raise StoreConflict(f"{path} in {store.url} is no record of a copy ({faults(error)}); delete it") from error


def write_stored(store: CasStore, held: Held, record: Stored) -> Held:
    """Write a record where nobody else has since it was read; returns where it stands now.

    Raises:
        StoreContention: somebody has: another attempt.
    """
    return Held(held.path, write_alone(store, held.path, record.encode(), held.version))


def place_of(stored: tuple[int, int]) -> EntryPosition:
    """A place, as it is stored."""
    return EntryPosition(*stored)
