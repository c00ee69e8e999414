"""Limits of what a compare of whole stores reports to the driver, and the repair of the rest, on real stores."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from activities.metadata_store.claims import TargetKeeper
from clients.store import Record, Seen
from clients.stores import Access, open_cas, open_remover, open_writer
from models.lifecycle.failures import NAMED
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.engine import SparkEngine
from spark.metadata_store import jobs, tasks
from spark.metadata_store.spec import Comparison, Pair
from tests.support.clients.claims import attempt_of
from tests.support.lifecycle.in_process import in_process
from tests.support.stacks import SharedStack

PATHS = [b"/compared/%02d/%05d" % (number % 20, number) for number in range(4_000)]
SET, MISSING = PATHS[:1_500], PATHS[1_500:2_200]
EXCESS = [b"/compared/%02d/more-%04d" % (number % 20, number) for number in range(600)]
ME = attempt_of(run=1)
# 1,024 sums of eight bytes, or a hundred names, and what says which class they are of.
LARGEST_RESULT = 8 * 1_024 + 1_000

pytestmark = pytest.mark.exhaustive


@pytest.fixture(params=["zookeeper", "oxia"])
def pair(request: pytest.FixtureRequest, shared_stack: SharedStack) -> Pair:
    """A source, and a copy in a store of each kind."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source = parse_store_url(f"{stack.zk_url}/compared-{request.param}")
    if request.param == "oxia":
        target = shared_stack(StackSpec(oxias=1, oxia_shards=2)).oxia_url
    else:
        target = f"{stack.second_zk_url}/compared"
    _write(source, [b"/pulsar", *PATHS], b"as it is")
    pair = replace(Pair(source, parse_store_url(target), Access(), parts=4), attempt=ME)
    with open_cas(pair.target, pair.access) as store:
        TargetKeeper(store, ME, "").claim(None)
    jobs.copy(in_process(), pair, tag="copy")
    return pair


def test_a_compare_counts_all_and_names_a_hundred(pair: Pair) -> None:
    """However many records differ, the driver gets their number and 100 names; a repair brings all of them in line."""
    engine = _Weighing()
    assert _compare(engine, pair).different == (0, ())
    _write(pair.target, SET, b"another value")
    _write(pair.target, EXCESS, b"")
    with open_remover(pair.target, pair.access, lambda: None) as remover:
        assert remover.remove([Seen(path, 0) for path in MISSING]) == len(MISSING)

    comparison = _compare(engine, pair)

    assert comparison.different.paths == len(SET) + len(MISSING) + len(EXCESS)
    assert len(set(comparison.different.named)) == NAMED
    assert {*comparison.different.named} <= {*SET, *MISSING, *EXCESS}
    assert engine.heaviest <= LARGEST_RESULT
    repaired = jobs.repair(cast("SparkEngine", engine), pair, comparison, tag="repair")
    assert repaired.remaining == (0, ())
    assert _compare(engine, pair).different == (0, ())
    jobs.clear(in_process(), pair, "target", tag="clear")
    with open_cas(pair.target, pair.access) as store:
        TargetKeeper(store, ME, "").release()


def test_whole_trees_in_excess_are_deleted(shared_stack: SharedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that were deleted during a copy go with all beneath them, also if other batches and parts hold that."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source = parse_store_url(f"{stack.zk_url}/trees")
    target = parse_store_url(f"{stack.second_zk_url}/trees")
    pair = replace(Pair(source, target, Access(), parts=4), attempt=ME)
    monkeypatch.setattr(tasks, "BATCH_SIZE", 50)
    _write(source, [b"/pulsar", PATHS[0]], b"as it is")
    with open_cas(target, pair.access) as store:
        TargetKeeper(store, ME, "").claim(None)
    topics = [b"/compared/%02d/topic-%03d" % (number % 20, number) for number in range(2 * NAMED)]
    _write(target, [path for topic in topics for path in (topic, topic + b"/cursor", topic + b"/cursor/mark")], b"")
    jobs.copy(in_process(), pair, tag="copy")
    engine = _Weighing()

    comparison = _compare(engine, pair)

    assert comparison.different.paths == 3 * len(topics) + 19
    remaining = jobs.repair(cast("SparkEngine", engine), pair, comparison, tag="repair").remaining
    assert remaining.all_named
    assert {path for path in remaining.named if path.count(b"/") > 2} == set()


def test_a_next_number_that_is_too_low_differs(shared_stack: SharedStack) -> None:
    """A znode whose next sequential child would get an old number again is found, and repaired."""
    stack = shared_stack(StackSpec(zookeepers=1, second_zookeepers=1))
    source = parse_store_url(f"{stack.zk_url}/counted")
    target = parse_store_url(f"{stack.second_zk_url}/counted")
    for url, count in ((source, 7), (target, 3)):
        with open_writer(url, Access(), keep_versions=True) as writer:
            writer.put(Record(b"/pulsar", b"", 0, 0, 0, 0, 0), over=None)
            writer.put(Record(b"/ledgers", b"", 0, 0, 0, 0, 0), over=None)
            writer.put(Record(b"/ledgers/idgen", b"", 0, count, 0, 0, 0), over=None)
            writer.flush()
    pair = replace(Pair(source, target, Access(), parts=2), attempt=ME)
    with open_cas(target, Access()) as store:
        TargetKeeper(store, ME, "").claim(None)
    engine = _Weighing()

    comparison = _compare(engine, pair)

    assert comparison.different == (1, (b"/ledgers/idgen",))
    assert jobs.repair(cast("SparkEngine", engine), pair, comparison, tag="repair").remaining == (0, ())
    assert _compare(engine, pair).different == (0, ())


class _Weighing:
    """Runs jobs in this process; knows how large a result was that the driver got."""

    def __init__(self) -> None:
        self._engine = in_process()
        self.heaviest = 0

    def width(self, *, tag: str) -> int:
        return self._engine.width(tag=tag)

    def fold(
        self,
        items: Sequence[Any],
        task: Callable[[Any], Any],
        take: Callable[[Any, Any], object],
        *,
        tag: str,
        urgent: bool = False,
    ) -> None:
        def weigh(item: object, result: object) -> None:
            self.heaviest = max(self.heaviest, len(pickle.dumps(result)))
            take(item, result)

        self._engine.fold(items, task, weigh, tag=tag, urgent=urgent)


def _compare(engine: _Weighing, pair: Pair) -> Comparison:
    return jobs.compare(cast("SparkEngine", engine), pair, records=len(PATHS), tag="compare")


def _write(url: StoreUrl, paths: Sequence[bytes], value: bytes) -> None:
    with open_writer(url, Access(), keep_versions=True) as writer:
        for path in paths:
            writer.put(Record(path, value, 0, 0, 0, 0, 0), over=None)
        writer.flush()
