"""Records of a source that a copy would take out of their indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from activities.lifecycle.precheck import Findings
from activities.metadata_store.indexed import check_indexed
from clients.store import Record, StoreReader, Unreadable
from models.metadata_store.input import MetadataStoreInput
from models.store_url import parse_store_url

ZOOKEEPER, OTHER, OXIA = "zk:a:1", "zk:b:1", "oxia://c:1"
TOPIC = b"/topics/public/default/orders"


class Tree:
    """A store in memory, with what the check asks of a reader."""

    def __init__(self, url: str, records: dict[bytes, bytes | None]) -> None:
        self.url = parse_store_url(url)
        self._records = records

    def children(self, path: bytes) -> list[bytes]:
        """Direct children, of parents that are not records too."""
        start = path + b"/"
        return sorted({start + key[len(start) :].split(b"/")[0] for key in self._records if key.startswith(start)})

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the children of several paths."""
        return (child for path in paths for child in self.children(path))

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        """Return the records; a value of None cannot be read."""
        return [self._read(path) for path in paths]

    def _read(self, path: bytes) -> Record | Unreadable | None:
        if path not in self._records:
            return None
        value = self._records[path]
        return Unreadable(path, "denied") if value is None else Record(path, value, 0, 0, 0, 0, 0)


def codes(source: str, target: str, records: dict[bytes, bytes | None], mode: str = "offline") -> list[str]:
    """Return the codes of blockers of a source with these records."""
    input = MetadataStoreInput.model_validate({"cluster": "c", "source": source, "target": target, "mode": mode})
    findings = Findings()
    check_indexed(input, cast("StoreReader", Tree(source, records)), findings)
    return [blocker.code for blocker in findings.blockers]


@pytest.mark.parametrize(
    ("source", "target", "mode", "refused"),
    [
        (ZOOKEEPER, OXIA, "live", True),
        (ZOOKEEPER, OXIA, "offline", True),
        (OXIA, ZOOKEEPER, "offline", True),
        (OXIA, "oxia://d:1", "offline", True),
        # Brokers keep their subscriptions to the source.
        (ZOOKEEPER, OTHER, "live", True),
        (ZOOKEEPER, OTHER, "offline", False),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        b"/txn/id/1",
        b"/txn/op/1-00000000000000000001",
        b"/txn/op/1__seq_counter__",
        b"/txn/segment-events/s-00000000000000000001",
        b"/txn/subscription-events/s:sub-00000000000000000001",
        b"/txn/segment-state/aborted/s:1",
        b"/txn/segment-state/watermark/s",
    ],
)
def test_transactions_are_refused(path: bytes, source: str, target: str, mode: str, refused: bool) -> None:
    """Any record of a transaction is refused from and to Oxia, and in a live migration."""
    assert codes(source, target, {path: b"{}"}, mode) == (["TRANSACTIONS"] if refused else [])


def test_a_coordinator_without_transactions_is_carried() -> None:
    """Parents without children, and what coordinators keep for themselves, are plain records."""
    paths = (b"/txn", b"/txn/id", b"/txn/op", b"/txn/tc", b"/txn/tc/parallelism", b"/txn/tc-seq/1")
    plain: dict[bytes, bytes | None] = dict.fromkeys(paths, b"")
    assert codes(ZOOKEEPER, OXIA, plain, "live") == []


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (b'{"epoch":1,"properties":{"team":"a"}}', True),
        (b'{"epoch":1,"properties":{}}', False),
        (b'{"epoch":1}', False),
        # A parent that a report of load has made.
        (b"", False),
        # What cannot be read may have them.
        (b"\x00", True),
        (None, True),
    ],
)
def test_topics_with_properties_are_refused(value: bytes | None, refused: bool) -> None:
    """A scalable topic with properties is refused where the target is Oxia, which finds it by an index."""
    records = {TOPIC: value, TOPIC + b"/segments/0/load": b"properties"}
    assert codes(ZOOKEEPER, OXIA, records) == (["TOPIC_PROPERTIES"] if refused else [])
    assert codes(ZOOKEEPER, OTHER, records) == []
