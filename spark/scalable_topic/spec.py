"""The description of a copy of a scalable topic to a regular one: plain data that travels to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from clients.pulsar.names import StoredTopic, TopicName
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.position import EntryPosition
from clients.stores import Access
from models.lifecycle.claim import CLAIM, Attempt
from models.scalable_topic.copies import KeyHash
from models.store_url import StoreUrl
from spark.scalable_topic.sums import Sum

PRODUCER = "pulsar-migrate-copy"
"""What the names of producers of a copy begin with; the segment's id follows."""


def producer_of(segment_id: int) -> str:
    """The name of the producer that copies a segment, the same for all attempts."""
    return f"{PRODUCER}-{segment_id}"


def segment_of(producer: str) -> int | None:
    """The segment that a producer copies; None for any other producer."""
    rest = producer.removeprefix(f"{PRODUCER}-")
    return int(rest) if rest != producer and rest.isdecimal() else None


@dataclass(frozen=True)
class CopyOut:
    """The topics on both ends, and how to talk to their cluster.

    Attributes:
        store: its metadata store, which also holds the claim and the records of the copy.
        attempt: on behalf of which tasks write; a task that finds a newer one in the claim stops.
        brokers_url: addresses of its brokers, `pulsar://…`.
        admin_urls: its admin interface.
        target: the regular topic.
        partitions: that it has; 0 for none.
        hashing: how producers of the regular topic choose a partition for a key.
        access: credentials and timeout for the store.
        wire: timeout, TLS and credentials for brokers.
        claim: path of the claim in the store.
        parallelism: how many tasks run at once; they share the throttle.
    """

    store: StoreUrl
    attempt: Attempt
    brokers_url: str
    admin_urls: tuple[str, ...]
    target: TopicName
    partitions: int
    hashing: KeyHash
    access: Access = field(default_factory=Access)
    wire: WireAccess = field(default_factory=WireAccess)
    claim: str = CLAIM
    parallelism: int = 1

    @property
    def parts(self) -> list[TopicName]:
        """The regular topic's partitions, or the topic itself."""
        return [self.target.of_partition(number) for number in range(self.partitions)] or [self.target]

    @property
    def notes(self) -> dict[str, str]:
        """What our producers and consumers say of themselves."""
        return {NOTE: self.attempt.workflow_id or "-"}


class SegmentCopy(NamedTuple):
    """What one task copies of one segment.

    Attributes:
        segment_id: which.
        descriptor: its part of the topic's name.
        topic: that holds its messages.
        created_ms: when it came to be; a topic that was created again has the same ids again.
        ended: whether nothing can be sent to it any more.
        most: bytes after which a task ends, so that progress shows; the next one continues.
    """

    segment_id: int
    descriptor: str
    topic: StoredTopic
    created_ms: int
    ended: bool
    most: int = 64 << 20


class CopyPart(NamedTuple):
    """What one task has copied.

    Attributes:
        entries: of the segment.
        found: of these, those that an earlier attempt had copied without a record of it.
        left: whether there is more.
    """

    entries: int = 0
    found: int = 0
    left: bool = False


class PartCheck(NamedTuple):
    """What one task reads of the regular topic, or of one partition.

    Attributes:
        number: of the partition; 0 for a topic without partitions.
        after: the place behind which it begins.
        sums: of what was read before, by segment.
        descendants: segments that must not come before a segment, by that one.
        most: bytes after which a task ends.
    """

    number: int
    after: EntryPosition
    sums: Mapping[int, Sum]
    descendants: Mapping[int, frozenset[int]]
    most: int = 64 << 20


class CheckedPart(NamedTuple):
    """What one task has read.

    Attributes:
        after: the place up to and with which all was read.
        sums: of all that was read up to there, by segment.
        entries: that this task read.
        left: whether there is more.
        difference: what is wrong; empty for nothing.
    """

    after: EntryPosition
    sums: Mapping[int, Sum]
    entries: int = 0
    left: bool = False
    difference: str = ""
