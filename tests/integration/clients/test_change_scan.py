"""The scan of a source for what changed since a transaction, which may run with writes blocked: on real stores."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from clients.oxia.connection import OxiaConnection
from clients.store import Record, Seen
from clients.stores import Access, last_transaction, open_reader, open_remover, open_writer
from clients.zookeeper.connection import Connection
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.metadata_store import jobs
from spark.metadata_store.replica import Replica
from spark.metadata_store.spec import Pair
from tests.support.lifecycle.in_process import in_process
from tests.support.stacks import SharedStack

SET, CREATED = 8_000, 22_000
OLD = [b"/old/%02d/%05d" % (number % 40, number) for number in range(SET)]
FRESH = [b"/new/%03d/%05d" % (number % 300, number) for number in range(CREATED)]
# A subtree, and one that hangs from the root.
GONE = [b"/old/00/gone", b"/old/00/gone/deep", b"/old/00/gone/deep/leaf", b"/top", b"/top/leaf"]
# A round trip for each node on both sides would be ten times as many.
MOST_REQUESTS = 6_000


@pytest.mark.parametrize("kind", ["zookeeper", "oxia"])
def test_a_scan_reads_in_bulk(shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Every node that was created, set or deleted is found, also the root, without a round trip for each node."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source = parse_store_url(f"{stack.zk_url}/scan-{kind}")
    oxia = kind == "oxia" and shared_stack(StackSpec(oxias=1, oxia_shards=2)).oxia_url
    pair = Pair(source, parse_store_url(oxia or f"{stack.second_zk_url}/scan"), Access(), parts=4)
    _write(source, OLD + GONE, 0)
    with Replica(pair, lambda: None) as replica:
        if not oxia:
            # Its permit to write is next to the claim.
            _write(pair.target, [b"/pulsar/migration-coordinator"], 0)
        assert replica.apply(OLD + GONE).written == len(OLD + GONE)
    since = last_transaction(source, Access())
    _write(source, OLD, 1)
    _write(source, FRESH, 0)
    with open_remover(source, Access(), lambda: None) as remover:
        _write(source, [b"/pulsar/migration-coordinator"], 0)
        assert remover.remove([Seen(path, 0) for path in GONE]) == len(GONE)
    requests = _count_requests(monkeypatch)
    begun = time.monotonic()
    changes = jobs.changed_since(in_process(), pair, since, tag="scan")
    seconds, asked = time.monotonic() - begun, next(requests)
    print(f"{len(changes)} changes of {kind}: {seconds:.2f} s, {asked} requests")
    assert changes >= {*OLD, *FRESH, *GONE}
    assert len(changes) <= len(OLD) + len(FRESH) + len(GONE) + 500
    assert asked < MOST_REQUESTS
    # Other tests share the target.
    with open_remover(pair.target, Access(), lambda: None) as remover, open_reader(pair.target, Access()) as reader:
        copied = [record for record in reader.read(OLD + GONE) if isinstance(record, Record)]
        deepest_first = sorted(copied, key=lambda record: record.path.count(b"/"), reverse=True)
        assert remover.remove([Seen(record.path, record.version) for record in deepest_first]) == len(copied)


def _write(url: StoreUrl, paths: list[bytes], version: int) -> None:
    with open_writer(url, Access(), keep_versions=True) as writer:
        for path in paths:
            writer.put(Record(path, b"version %d" % version, version, 0, 0, 0, 0), over=None)
        writer.flush()


def _count_requests(monkeypatch: pytest.MonkeyPatch) -> Any:
    requests = itertools.count()
    submit, stream = Connection.submit, OxiaConnection.stream

    def counted_submit(self: Connection, op: int, body: bytes) -> int:
        next(requests)
        return submit(self, op, body)

    def counted_stream(self: OxiaConnection, shard: int, method: str, request: Any, answer: Any) -> Any:
        next(requests)
        return stream(self, shard, method, request, answer)

    monkeypatch.setattr(Connection, "submit", counted_submit)
    monkeypatch.setattr(OxiaConnection, "stream", counted_stream)
    return requests
