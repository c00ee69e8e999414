"""The description of a bulk job: plain data that travels to executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from clients.store import Partition
from clients.stores import Access
from models.lifecycle.claim import READ_ONLY, Attempt
from models.lifecycle.failures import NAMED
from models.store_url import StoreUrl

UINT64_MAX = (1 << 64) - 1
"""Sums of digests wrap around here."""


@dataclass(frozen=True)
class Pair:
    """Both stores of a migration, and how to talk to them.

    Attributes:
        parts: into how many parts a store is split.
        parallelism: how many tasks run at once at most; they share the throttle.
        attempt: on behalf of which tasks write; a task that finds a newer one in the claim of the store that it
            writes to stops.
        urgent: whether somebody is blocked until it is done: there is no throttle then, and no wait for other runs.
    """

    source: StoreUrl
    target: StoreUrl
    access: Access
    parts: int
    parallelism: int = 1
    attempt: Attempt = READ_ONLY
    urgent: bool = False


class Copied(NamedTuple):
    """What one task, or a whole job, copied; `highest` is the highest version among the records."""

    records: int
    value_bytes: int
    highest: int


class PathSample(NamedTuple):
    """Paths that were found: at most 100 of them, and how many there are."""

    paths: tuple[bytes, ...] = ()
    total: int = 0

    @staticmethod
    def of(paths: Sequence[bytes]) -> PathSample:
        """All paths that one task found."""
        return PathSample(tuple(paths[:NAMED]), len(paths))

    @staticmethod
    def joined(found: Iterable[PathSample]) -> PathSample:
        """Those of several tasks."""
        every = list(found)
        paths = [path for one in every for path in one.paths]
        return PathSample(tuple(paths[:NAMED]), sum(one.total for one in every))


class Surveyed(NamedTuple):
    """What one task, or a whole job, found in a store.

    Attributes:
        misplaced: Oxia: records written with a partition key, which cannot be carried.
        too_high: ZooKeeper as target: records whose version or next number is too high to count up to.
        no_version: Oxia as target: records of the one version that it takes for "there is none".
        no_znode: ZooKeeper as target: records whose key cannot be the path of a znode.
        sessions: sessions that hold records, sequential ones too, each with one of these; at most 1000 for each task.
        others: how many of the records are beneath roots that Pulsar does not have; a cleanup leaves them.
        nested: records that show the root of another cluster within the records of this one.
        protected: ZooKeeper as source: records whose ACL does not give everyone all permissions.
    """

    records: int
    value_bytes: int
    ephemerals: int
    largest: tuple[int, bytes]
    sessions: dict[int, bytes]
    others: int
    unreadable: PathSample = PathSample()
    misplaced: PathSample = PathSample()
    too_high: PathSample = PathSample()
    no_version: PathSample = PathSample()
    no_znode: PathSample = PathSample()
    nested: PathSample = PathSample()
    protected: PathSample = PathSample()


class Changed(NamedTuple):
    """What one task of a scan found.

    Attributes:
        paths: records that were created or set, or whose children came or went.
        parents: those of them whose children came or went.
    """

    paths: list[bytes]
    parents: list[bytes]


class SidePart(NamedTuple):
    """A part of one side of a compare."""

    part: Partition
    of_source: bool


class Side(NamedTuple):
    """A part of one side of a compare.

    Attributes:
        sums: of record digests by path bucket: unsigned 64-bit integers, one for each bucket, native byte order.
        ephemerals: paths of records that belong to sessions.
        lagging: buckets of records whose next number in the target is lower than it must be.
    """

    sums: bytes
    records: int
    ephemerals: tuple[bytes, ...]
    lagging: frozenset[int]


class Buckets(NamedTuple):
    """Some of the buckets into which the paths of a compare fall.

    Attributes:
        total: how many buckets there are, a power of two, 8 or more.
        chosen: a bit for each, set for those that are meant.
    """

    total: int
    chosen: bytes

    @classmethod
    def of(cls, total: int, chosen: Iterable[int]) -> Buckets:
        """These ones."""
        bits = bytearray(total // 8)
        for one in chosen:
            bits[one >> 3] |= 1 << (one & 7)
        return cls(total, bytes(bits))

    def hold(self, path: bytes) -> bool:
        """Whether a path falls into one of the chosen ones."""
        one = bucket(path, self.total)
        return bool(self.chosen[one >> 3] >> (one & 7) & 1)

    def __bool__(self) -> bool:
        """Whether any are chosen."""
        return any(self.chosen)


def bucket(path: bytes, buckets: int) -> int:
    """The bucket of a path; `buckets` is a power of two."""
    return xxh3_64_intdigest(path) & (buckets - 1)


class Differences(NamedTuple):
    """Paths that differ, are missing or stand in excess in the target: how many, and at most 100 of them."""

    paths: int
    named: tuple[bytes, ...]

    @property
    def all_named(self) -> bool:
        """Whether none is left out of `named`."""
        return self.paths == len(self.named)


class Comparison(NamedTuple):
    """Result of a full compare.

    Attributes:
        records: persistent records of the source that were compared.
        different: what the target has not as it shall.
        ephemerals: paths of the source's ephemerals.
        buckets: into which all different paths fall.
    """

    records: int
    different: Differences
    ephemerals: tuple[bytes, ...]
    buckets: Buckets


class Repaired(NamedTuple):
    """What one task of a repair, or a whole one, did.

    Attributes:
        records: that were looked at.
        left: what is still different after some tries.
        highest: the highest version among the records of the source that were read.
    """

    records: int
    left: Differences
    highest: int
