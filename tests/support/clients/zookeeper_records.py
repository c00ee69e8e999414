"""Small helpers for tests on a real ZooKeeper: write records, and read a store's contents."""

from __future__ import annotations

from typing import Any

from clients.store import Record, Unreadable
from clients.zookeeper import ZooKeeperReader, ZooKeeperWriter
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from models.store_url import StoreUrl


def record(path: str, value: bytes = b"", version: int = 0, count: int = 0) -> Record:
    """Return a persistent record."""
    return Record(path.encode(), value, version, count, 0, 0, 0)


def scan(url: StoreUrl, parts: int = 1, access: ZooKeeperAccess = ANONYMOUS) -> list[Record | Unreadable]:
    """Return all records of a store, read as this many partitions."""
    with ZooKeeperReader(url, access=access) as reader:
        return [
            record for partition in reader.partitions(parts) for batch in reader.scan(partition) for record in batch
        ]


def by_path(records: list[Record | Unreadable]) -> dict[bytes, Record]:
    """Return records by their paths, each of them once and readable."""
    records_by_path = {record.path: record for record in records if isinstance(record, Record)}
    assert len(records_by_path) == len(records)
    return records_by_path


def write(url: StoreUrl, records: list[Record], *, over: int | None = None, **options: Any) -> int:
    """Put all records and flush."""
    with ZooKeeperWriter(url, **options) as writer:
        for record in records:
            writer.put(record, over=over)
        return writer.flush()


def contents(url: StoreUrl, access: ZooKeeperAccess = ANONYMOUS) -> dict[bytes, tuple[bytes, int]]:
    """Return value and version of all nodes."""
    return {path: (record.value, record.version) for path, record in by_path(scan(url, access=access)).items()}
