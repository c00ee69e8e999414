"""The description of a copy of topics: plain data that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from clients.stores import Access
from models.lifecycle.claim import CLAIM, Attempt
from models.store_url import StoreUrl
from spark.blue_green.positions import LedgerLength

PRODUCER = "pulsar-migrate-copy"
"""Name of the producer of copies on green, the same for all attempts; the broker frees it once everything is stored."""


@dataclass(frozen=True)
class CopyEnds:
    """Both clusters, with how to access them.

    Attributes:
        store: blue's metadata store, which also has the claim and the records of copies.
        attempt: attempt of the writing tasks; a task stops when the claim has a newer one.
        blue_url: addresses of blue's brokers, `pulsar://…`.
        green_url: addresses of green's brokers.
        green_admin: addresses of green's admin interface.
        ledgers: root of the ledgers of blue; None if its bookies cannot be read and its brokers are read instead.
        access: credentials, TLS settings and timeout for blue's stores and bookies.
        blue_access: timeout, TLS and credentials for blue's brokers.
        green_access: timeout, TLS and credentials for green's brokers.
        claim: path of the claim in the store.
        read_timeout: seconds until the next replica is asked for an entry.
        parallelism: most tasks that run at once; they share the throttle.
        urgent: whether writes are blocked until the job is done; then there is no throttle and no wait for Spark.
    """

    store: StoreUrl
    attempt: Attempt
    blue_url: str
    green_url: str
    green_admin: tuple[str, ...]
    ledgers: StoreUrl | None = None
    access: Access = field(default_factory=Access)
    blue_access: WireAccess = field(default_factory=WireAccess)
    green_access: WireAccess = field(default_factory=WireAccess)
    claim: str = CLAIM
    read_timeout: float = 5.0
    parallelism: int = 1
    urgent: bool = False

    @property
    def notes(self) -> dict[str, str]:
        """Properties with which our producers and consumers identify themselves."""
        return {NOTE: self.attempt.workflow_id or "-"}


class TopicCopy(NamedTuple):
    """Part of a topic without partitions, or of one partition, that one task copies or compares.

    Attributes:
        topic: topic or partition.
        ledgers: ledgers on blue, oldest first, with their confirmed entries.
        start: position on blue after which a new copy starts.
        most: bytes after which the task ends, so that progress shows; the next one continues.
        through_broker: whether to read from blue's brokers and not its bookies: where ledgers are in tiered storage.
    """

    topic: TopicName
    ledgers: tuple[LedgerLength, ...]
    start: EntryPosition = EARLIEST
    most: int = 64 << 20
    through_broker: bool = False


class CopyPart(NamedTuple):
    """Result of one task.

    Attributes:
        entries: number of copied or compared entries.
        messages: number of their messages.
        size: bytes of their messages.
        remaining: number of entries that are not done yet.
        already_copied: entries among them that an earlier attempt had copied without a record.
        difference: where the sides differ; empty if they do not.
    """

    entries: int = 0
    messages: int = 0
    size: int = 0
    remaining: int = 0
    already_copied: int = 0
    difference: str = ""
