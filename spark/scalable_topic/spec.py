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
"""Prefix of the names of producers of a copy; the segment's id follows."""


def producer_of(segment_id: int) -> str:
    """Return the name of the producer that copies a segment, the same for all attempts."""
    return f"{PRODUCER}-{segment_id}"


def segment_of(producer: str) -> int | None:
    """Return the segment that a producer copies; None for any other producer."""
    rest = producer.removeprefix(f"{PRODUCER}-")
    return int(rest) if rest != producer and rest.isdecimal() else None


@dataclass(frozen=True)
class CopyOut:
    """Source and target of a copy, with how to access their cluster.

    Attributes:
        store: metadata store of the cluster, which also has the claim and the records of the copy.
        attempt: attempt of the writing tasks; a task stops when the claim has a newer one.
        brokers_url: addresses of the brokers, `pulsar://…`.
        admin_urls: addresses of the admin interface.
        target: name of the regular topic.
        partitions: number of its partitions; 0 for none.
        hashing: how producers of the regular topic choose a partition for a key.
        access: credentials and timeout for the store.
        wire: timeout, TLS and credentials for brokers.
        claim: path of the claim in the store.
        parallelism: most tasks that run at once; they share the throttle.
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
        """Partitions of the regular topic, or the topic itself."""
        return [self.target.of_partition(number) for number in range(self.partitions)] or [self.target]

    @property
    def notes(self) -> dict[str, str]:
        """Properties with which our producers and consumers identify themselves."""
        return {NOTE: self.attempt.workflow_id or "-"}


class SegmentCopy(NamedTuple):
    """Part of a segment that one task copies.

    Attributes:
        segment_id: id of the segment.
        descriptor: segment's part of the topic's name.
        topic: topic with its messages.
        created_ms: time of the topic's creation; a topic that was created again has the same segment ids.
        ended: whether no message can be sent to the segment any more.
        most: bytes after which the task ends, so that progress shows; the next one continues.
    """

    segment_id: int
    descriptor: str
    topic: StoredTopic
    created_ms: int
    ended: bool
    most: int = 64 << 20


class CopyPart(NamedTuple):
    """Result of one task of a copy.

    Attributes:
        entries: number of entries that were copied.
        already_copied: entries among them that an earlier attempt had copied without a record.
        remaining: whether there is more to copy.
    """

    entries: int = 0
    already_copied: int = 0
    remaining: bool = False


class PartCheck(NamedTuple):
    """Part of the regular topic, or of one partition, that one task reads.

    Attributes:
        number: number of the partition; 0 for a topic without partitions.
        after: position after which it starts.
        sums: sums of what was read before, by segment.
        descendants: segments that must not come before a segment, by that segment.
        most: bytes after which the task ends.
    """

    number: int
    after: EntryPosition
    sums: Mapping[int, Sum]
    descendants: Mapping[int, frozenset[int]]
    most: int = 64 << 20


class CheckedPart(NamedTuple):
    """Result of one task of a check.

    Attributes:
        after: position up to which everything was read.
        sums: sums of everything up to there, by segment.
        entries: number of entries that this task read.
        remaining: whether there is more to read.
        difference: what is wrong; empty if nothing is.
    """

    after: EntryPosition
    sums: Mapping[int, Sum]
    entries: int = 0
    remaining: bool = False
    difference: str = ""
