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
"""Modulus of sums of digests, less one."""


@dataclass(frozen=True)
class Pair:
    """Both stores of a migration, with how to access them.

    Attributes:
        parts: number of parts into which a store is split.
        parallelism: most tasks that run at once; they share the throttle.
        attempt: attempt of the writing tasks; a task stops when the claim of the store that it writes has a newer one.
        urgent: whether writes are blocked until the job is done; then there is no throttle and no wait for other runs.
    """

    source: StoreUrl
    target: StoreUrl
    access: Access
    parts: int
    parallelism: int = 1
    attempt: Attempt = READ_ONLY
    urgent: bool = False


class Copied(NamedTuple):
    """Result of a copy, of one task or a whole job; `highest` is the highest version among the records."""

    records: int
    value_bytes: int
    highest: int


class PathSample(NamedTuple):
    """Sample of paths: at most 100 of them, and their total number."""

    paths: tuple[bytes, ...] = ()
    total: int = 0

    @staticmethod
    def of(paths: Sequence[bytes]) -> PathSample:
        """Return the sample of all these paths."""
        return PathSample(tuple(paths[:NAMED]), len(paths))

    @staticmethod
    def joined(samples: Iterable[PathSample]) -> PathSample:
        """Return the sample of several samples together."""
        every = list(samples)
        paths = [path for sample in every for path in sample.paths]
        return PathSample(tuple(paths[:NAMED]), sum(sample.total for sample in every))


class Surveyed(NamedTuple):
    """Result of a survey, of one task or a whole job.

    Attributes:
        misplaced: Oxia: records written with a partition key, which cannot be copied.
        too_high: ZooKeeper as target: records whose version or next number is too high to count up to.
        no_version: Oxia as target: records with the version that Oxia uses for a missing record.
        no_znode: ZooKeeper as target: records whose key cannot be the path of a znode.
        sessions: sessions that hold records, also sequential ones, each with one record; at most 1000 for each task.
        others: records beneath roots that are not Pulsar's; a cleanup keeps them.
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
    """Result of one task of a scan.

    Attributes:
        paths: records that were created or set, or whose children came or went.
        parents: those of them whose children came or went.
    """

    paths: list[bytes]
    parents: list[bytes]


class SidePart(NamedTuple):
    """A part of one side of a compare."""

    partition: Partition
    of_source: bool


class Side(NamedTuple):
    """Sums of a part of one side of a compare.

    Attributes:
        sums: sums of record digests by path bucket: unsigned 64-bit integers, one for each bucket, native byte order.
        ephemerals: paths of records that belong to sessions.
        lagging: buckets of records whose next number in the target is too low.
    """

    sums: bytes
    records: int
    ephemerals: tuple[bytes, ...]
    lagging: frozenset[int]


class Buckets(NamedTuple):
    """Selection from the buckets into which the paths of a compare fall.

    Attributes:
        total: number of buckets, a power of two, at least 8.
        chosen: one bit for each bucket, set for chosen ones.
    """

    total: int
    chosen: bytes

    @classmethod
    def of(cls, total: int, chosen: Iterable[int]) -> Buckets:
        """Return a selection of these buckets."""
        bits = bytearray(total // 8)
        for index in chosen:
            bits[index >> 3] |= 1 << (index & 7)
        return cls(total, bytes(bits))

    def hold(self, path: bytes) -> bool:
        """Return whether a path falls into a chosen bucket."""
        index = bucket(path, self.total)
        return bool(self.chosen[index >> 3] >> (index & 7) & 1)

    def __bool__(self) -> bool:
        """Return whether any bucket is chosen."""
        return any(self.chosen)


def bucket(path: bytes, buckets: int) -> int:
    """Return the bucket of a path; `buckets` is a power of two."""
    return xxh3_64_intdigest(path) & (buckets - 1)


class Differences(NamedTuple):
    """Paths that differ, are missing or exist in excess in the target: their number, and at most 100 of them."""

    paths: int
    named: tuple[bytes, ...]

    @property
    def all_named(self) -> bool:
        """True if `named` has all of them."""
        return self.paths == len(self.named)


class Comparison(NamedTuple):
    """Result of a full compare.

    Attributes:
        records: persistent records of the source that were compared.
        different: paths at which the target differs from what it must hold.
        ephemerals: paths of the source's ephemerals.
        buckets: buckets of all differing paths.
    """

    records: int
    different: Differences
    ephemerals: tuple[bytes, ...]
    buckets: Buckets


class Repaired(NamedTuple):
    """Result of a repair, of one task or a whole job.

    Attributes:
        records: number of checks of records.
        remaining: paths that still differ after some tries.
        highest: highest version among the source's records that were read.
    """

    records: int
    remaining: Differences
    highest: int
