"""The description of a copy of topics: plain data that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE, WireAccess
from clients.pulsar.wire.position import EARLIEST, EntryPosition
from clients.stores import Access
from clients.tls import Tls
from models.lifecycle.claim import CLAIM, Attempt
from models.store_url import StoreUrl
from spark.blue_green.positions import LedgerLength

PRODUCER = "pulsar-migrate-copy"
"""Name of the producer of copies on green, the same for all attempts: the name is free again when all is stored."""


@dataclass(frozen=True)
class CopyEnds:
    """Both clusters, and how to talk to them.

    Attributes:
        store: blue's metadata store, which also holds the claim and the records of copies.
        attempt: on behalf of which tasks write; a task that finds a newer one in the claim stops.
        blue_url: addresses of blue's brokers, `pulsar://…`.
        green_url: the same of green.
        green_admin: green's admin interface.
        ledgers: root of the ledgers of blue; None if its bookies cannot be read, so that its brokers are.
        access: credentials and timeout for blue's stores.
        bookies_tls: how TLS to bookies is done; None for none.
        blue_access: timeout, TLS and credentials for blue's brokers.
        green_access: the same for green.
        claim: path of the claim in the store.
        read_timeout: seconds until the next replica is asked for an entry.
        parallelism: how many tasks run at once; they share the throttle.
        urgent: whether writes are blocked until it is done: there is no throttle then, and no wait for Spark.
    """

    store: StoreUrl
    attempt: Attempt
    blue_url: str
    green_url: str
    green_admin: tuple[str, ...]
    ledgers: StoreUrl | None = None
    access: Access = field(default_factory=Access)
    bookies_tls: Tls | None = None
    blue_access: WireAccess = field(default_factory=WireAccess)
    green_access: WireAccess = field(default_factory=WireAccess)
    claim: str = CLAIM
    read_timeout: float = 5.0
    parallelism: int = 1
    urgent: bool = False

    @property
    def notes(self) -> dict[str, str]:
        """What our producers and consumers say of themselves."""
        return {NOTE: self.attempt.workflow_id or "-"}


class TopicCopy(NamedTuple):
    """A topic without partitions, or one partition, and what of it one task copies or compares.

    Attributes:
        topic: which.
        ledgers: of blue, oldest first, with the entries that are confirmed.
        start: the place of blue behind which a copy that has not begun begins.
        most: bytes after which a task ends, so that progress shows; the next one continues.
        through_broker: whether blue's brokers are asked and not its bookies: where ledgers are in tiered storage.
    """

    topic: TopicName
    ledgers: tuple[LedgerLength, ...]
    start: EntryPosition = EARLIEST
    most: int = 64 << 20
    through_broker: bool = False


class CopyPart(NamedTuple):
    """What one task has done.

    Attributes:
        entries: that it copied or compared.
        messages: in them.
        size: their bytes.
        remaining: entries that are not done yet.
        already_copied: entries among them that an earlier attempt had copied without a record of it.
        difference: where both sides differ; empty if they do not.
    """

    entries: int = 0
    messages: int = 0
    size: int = 0
    remaining: int = 0
    already_copied: int = 0
    difference: str = ""
