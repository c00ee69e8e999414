"""Rules for what the target must hold for a record of the source, and when both are equal."""

from __future__ import annotations

import re

from clients.store import COORDINATOR, Record
from clients.zookeeper.counters import keeps_count, target_count
from models.store_url import StoreUrl

# Sequential ephemerals of Pulsar and its BookKeeper drivers (5.0.1, 4.2.4): names of producers, ids of ledgers. The
# name alone is ambiguous: a lock of ledger 4711 is `urL0000004711`, and a bookie may have such an id.
_SEQUENTIAL = re.compile(rb"/(?:counters/.+/-|ledgers/idgen/ID-|ledgers/idgen-long/.+/ID-)-?\d{10,}")
_BENEATH_COORDINATOR = COORDINATOR + b"/"
# ZooKeeper's own rules for the path of a request: no control characters, surrogates, private use or specials.
_NO_ZNODE = re.compile(r"^[^/]|//|/\.{1,2}(?:/|$)|.+/$|[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]", re.DOTALL)


def migrates(record: Record) -> bool:
    """Return whether a record is metadata: not a session's, and not part of the migration's own coordination."""
    return not record.owner and not is_coordination(record.path)  # mutant: metadata-store/ephemerals-are-copied


def is_coordination(path: bytes) -> bool:
    """Return whether a path belongs to the migration's own coordination."""
    return path.startswith(COORDINATOR) and (path == COORDINATOR or path.startswith(_BENEATH_COORDINATOR))


def is_recreated(path: bytes) -> bool:
    """Return whether the client that holds an ephemeral must create it in the target too."""
    # Pulsar (4.2 and 5.0) stores the path of a sequential ephemeral without its number, and so never recreates it.
    # Another client's ephemeral, such as a lock, is not recreated either: that client must end.
    return is_held(path) and not _SEQUENTIAL.fullmatch(path)  # mutant: metadata-store/locks-are-sequences


def is_held(path: bytes) -> bool:
    """Return whether an ephemeral shows that its session's client uses the store."""
    # A key without a leading slash is a record of Oxia's client about itself: the canary of a session.
    return path.startswith(b"/") and not is_coordination(path)  # mutant: metadata-store/holders-of-sequences-are-unseen


def is_znode_path(path: bytes) -> bool:
    """Return whether ZooKeeper can have a znode with this path."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and not _NO_ZNODE.search(text)


class Equivalence:
    """Rules for one pair of stores.

    ZooKeeper to Oxia keeps the version and uses it as modification count too, except where the number of the next
    sequential child must be higher. ZooKeeper to ZooKeeper keeps the version, and next numbers never fall. Oxia to
    Oxia keeps both numbers. Oxia to ZooKeeper keeps next numbers only: a znode cannot have a given version id.
    """

    def __init__(self, source: StoreUrl, target: StoreUrl) -> None:
        self.source_is_zookeeper = source.scheme == "zk"
        self.target_is_zookeeper = target.scheme == "zk"
        self.keeps_versions = self.source_is_zookeeper or not self.target_is_zookeeper

    def wanted(self, record: Record) -> Record:
        """Return the record that the target must hold for a record of the source."""
        if not self.target_is_zookeeper:
            count = target_count(record) if self.source_is_zookeeper else record.count
            return record if count == record.count else record._replace(count=count)
        if self.source_is_zookeeper:
            return record
        # Oxia numbers the next child one above its count; a znode's count is itself the next number.
        count = record.count + 1 if keeps_count(record.path, record.value) else 0
        return record._replace(version=0, count=count)

    def source_numbers(self, record: Record) -> tuple[int, int]:
        """Return version and count by which a record of the source is compared."""
        if not self.target_is_zookeeper:
            return record.version, (target_count(record) if self.source_is_zookeeper else record.count)
        return (record.version if self.source_is_zookeeper else 0), 0

    def target_numbers(self, record: Record) -> tuple[int, int]:
        """Return version and count by which a record of the target is compared."""
        if not self.target_is_zookeeper:
            return record.version, record.count
        return (record.version if self.source_is_zookeeper else 0), 0

    def counter(self, record: Record) -> int:
        """Return the least count that the target needs for a record of the source; 0 if counts must be equal."""
        if self.target_is_zookeeper and keeps_count(record.path, record.value):
            return self.wanted(record).count
        return 0

    def least_count(self, record: Record) -> int:
        """Return the least count with which no number of a child of a record is given twice."""
        return max(self.source_numbers(record)[1], self.counter(record))

    def raise_needed(self, record: Record) -> int:
        """Return how far the target must count up to hold a record of the source; 0 if it can be set directly."""
        if not self.target_is_zookeeper:
            return 0
        return max(record.version if self.keeps_versions else 0, self.counter(record))

    def has_no_version(self, record: Record) -> bool:
        """Return whether the target takes a record's version for that of a record which does not exist."""
        return record.version == -1 and self.keeps_versions and not self.target_is_zookeeper

    def has_no_znode(self, record: Record) -> bool:
        """Return whether the target is a ZooKeeper that cannot have a znode with this name."""
        return self.target_is_zookeeper and not self.source_is_zookeeper and not is_znode_path(record.path)

    def equal(self, source: Record, target: Record) -> bool:
        """Return whether the target holds what it must for a record of the source."""
        return (
            not target.owner  # mutant: metadata-store/an-ephemeral-is-a-copy
            and source.value == target.value  # mutant: metadata-store/values-are-not-compared
            # mutant: metadata-store/versions-are-not-compared
            and self.source_numbers(source) == self.target_numbers(target)
            # At least: counts in ZooKeeper cannot be lowered, and a higher one only skips numbers.
            and target.count >= self.counter(source)  # mutant: metadata-store/counters-may-fall
        )

    def may_exist_alone(self, target: Record) -> bool:
        """Return whether the target may hold a record that the source lacks: a znode that only carries children.

        Oxia needs no parents; ZooKeeper does.
        """
        return self.target_is_zookeeper and not self.source_is_zookeeper and not target.value and target.count > 0
