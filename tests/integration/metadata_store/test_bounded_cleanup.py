"""The cleanup of a source in bounded steps, by the job that `clean_source` runs: on real stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from clients.cas.claims import ClaimKeeper
from clients.oxia.reader import OxiaReader
from clients.store import Partition, Record
from clients.stores import Access, open_cas, open_writer
from clients.zookeeper.reader import ZooKeeperReader
from models.metadata_store.claims import SOURCE, SourceClaim
from models.store_url import parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.metadata_store import jobs
from spark.metadata_store.spec import Pair
from tests.support.clients.claims import attempt_of
from tests.support.lifecycle.in_process import WIDTH, in_process
from tests.support.metadata_store import stores
from tests.support.stacks import SharedStack

PATHS = [b"/ledgers/%02d/%05d" % (number % 50, number) for number in range(10_000)]
LIMIT = 1_000
# What a step may read beyond what it removes.
MOST_READ = 3 * LIMIT

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("kind", ["zookeeper", "oxia"])
def test_a_step_reads_little_more_than_it_removes(
    shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Steps end, each removes about the limit, none reads the whole store, and the coordinator's nodes stay."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    oxia = kind == "oxia" and shared_stack(StackSpec(oxias=1, oxia_shards=2)).oxia_url
    source = parse_store_url(oxia or f"{stack.zk_url}/bounded")
    with open_writer(source, Access(), keep_versions=True) as writer:
        for path in PATHS:
            writer.put(Record(path, b"", 0, 0, 0, 0, 0), over=None)
        writer.flush()
    me = attempt_of(run=1)
    with open_cas(source, Access()) as store:
        ClaimKeeper(store, SourceClaim, me).take(side=SOURCE)
    pair = replace(Pair(source, source, Access(), parts=4), attempt=me)
    reads = _count_records(monkeypatch)
    steps = [jobs.clear(in_process(), pair, "source", limit=LIMIT, tag="clean") for _ in range(3)]
    read = next(reads)
    print(f"{kind}: {steps}, {read} records read")
    assert all(LIMIT <= removed <= LIMIT + WIDTH and has_more for removed, has_more in steps)
    assert read <= 3 * MOST_READ
    while (step := jobs.clear(in_process(), pair, "source", limit=LIMIT, tag="clean"))[1]:
        steps.append(step)
        assert step[0] > 0, "a step that removes nothing is the last one"
    steps.append(step)
    assert sum(removed for removed, _ in steps) >= len(PATHS)
    read_tree = stores.read_oxia if oxia else stores.read_zookeeper
    assert not [path for path in read_tree(str(source)) if path.startswith("/ledgers")]
    with open_cas(source, Access()) as store:
        ClaimKeeper(store, SourceClaim, me).release()


def _count_records(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    reads = count()
    for reader in (ZooKeeperReader, OxiaReader):
        monkeypatch.setattr(reader, "scan", _counted(reader.scan, reads))
    return reads


def _counted(scan: Any, reads: Iterator[int]) -> Any:
    def counted(self: Any, partition: Partition) -> Iterator[list[Any]]:
        for batch in scan(self, partition):
            for _ in batch:
                next(reads)
            yield batch

    return counted
