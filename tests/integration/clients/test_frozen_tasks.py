"""Bulk tasks of an attempt that was frozen, and that continues when a later run has committed: on real stores."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activities.metadata_store.claims import TargetKeeper
from clients.errors import StoreError, Superseded
from clients.oxia.connection import OxiaConnection
from clients.store import Partition, Record
from clients.stores import Access, late_writes_last, open_cas, open_reader, open_writer
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from models.lifecycle.claim import Attempt
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.spec import StackSpec
from spark.engine import SparkEngine
from spark.metadata_store import jobs, tasks
from spark.metadata_store.spec import Pair
from tests.support.clients.claims import attempt_of
from tests.support.stacks import SharedStack
from tests.support.waiting import timeout_for, wait_until_equal

RECORDS = 6_000
PATHS = [b"/bulk/%04d" % number for number in range(RECORDS)]
# Which of its writes a task is frozen at.
FROZEN_AT = 2
SUPERSEDED = 7

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def source(shared_stack: SharedStack) -> StoreUrl:
    """Records enough for a task to be frozen in the middle."""
    url = parse_store_url(shared_stack(StackSpec(zookeepers=1, second_zookeepers=1)).zk_url + "/frozen/source")
    with open_writer(url, Access(), keep_versions=True) as writer:
        # This node exists in the target too, above the claim.
        writer.put(Record(b"/pulsar", b"", 0, 0, 0, 0, 0), over=None)
        for path in PATHS:
            writer.put(Record(path, path * 30, 0, 0, 0, 0, 0), over=None)
        writer.flush()
    return url


@pytest.fixture(params=["zookeeper", "oxia"])
def pair(request: pytest.FixtureRequest, shared_stack: SharedStack, source: StoreUrl) -> Pair:
    """The source, and an empty target of each kind."""
    if request.param == "oxia":
        target = shared_stack(StackSpec(oxias=1, oxia_shards=2)).oxia_url
    else:
        name = request.node.originalname
        target = f"{shared_stack(StackSpec(zookeepers=1, second_zookeepers=1)).second_zk_url}/frozen/{name}"
    return Pair(source, parse_store_url(target), Access(), parts=4)


def test_a_frozen_remover_takes_nothing_from_a_later_run(engine: SparkEngine, pair: Pair) -> None:
    """A frozen remover deletes no record of a later run, even at the same version."""
    old, new = attempt_of(run=1), attempt_of(run=2)
    _copy(engine, pair, old)
    with _frozen(pair, old, _clear_as_executor):
        _copy(engine, pair, new)
    assert jobs.compare(engine, _of(pair, new), records=RECORDS, tag="compare").different.paths == 0
    _clear(engine, pair, attempt_of(run=3))


def test_a_frozen_copy_brings_nothing_back(engine: SparkEngine, pair: Pair) -> None:
    """Records that services deleted after the commit stay deleted: the target refuses late writes."""
    old, new = attempt_of(run=1), attempt_of(run=2)
    _take(pair, old)
    with _frozen(pair, old, _copy_as_executor):
        _copy(engine, pair, new)
        _clear(engine, pair, new)
        # As a migration does before services write there.
        threading.Event().wait(late_writes_last(pair.target))
    with open_reader(pair.target, pair.access) as reader:
        back = sum(record is not None for record in reader.read(PATHS))
    assert back == 0
    _clear(engine, pair, attempt_of(run=3))


def _of(pair: Pair, me: Attempt) -> Pair:
    return replace(pair, attempt=me)


def _take(pair: Pair, me: Attempt) -> None:
    with open_cas(pair.target, pair.access) as store:
        TargetKeeper(store, me, "").claim(None)


def _release(pair: Pair, me: Attempt) -> None:
    with open_cas(pair.target, pair.access) as store:
        TargetKeeper(store, me, "").release()


def _copy(engine: SparkEngine, pair: Pair, me: Attempt) -> None:
    _take(pair, me)
    assert jobs.copy(engine, _of(pair, me), tag="copy").records >= RECORDS


def _clear(engine: SparkEngine, pair: Pair, me: Attempt) -> None:
    _take(pair, me)
    assert jobs.clear(engine, _of(pair, me), "target", tag="clear")[1] == 0
    _release(pair, me)


@contextmanager
def _frozen(pair: Pair, me: Attempt, task: Callable[[Pair], None]) -> Generator[None]:
    """Run a task in a new process until it freezes; at the end, resume it until it gives up."""
    process = multiprocessing.get_context("spawn").Process(target=task, args=(_of(pair, me),))
    process.start()
    stat = Path(f"/proc/{process.pid}/stat")
    try:
        wait_until_equal("a frozen task", lambda: stat.read_text().rpartition(")")[2].split()[0], "T", 60)
        yield
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)
        process.join(timeout_for(60))
    assert process.exitcode == SUPERSEDED, "the task was not superseded"


def _clear_as_executor(pair: Pair) -> None:
    _until_superseded(lambda partition: tasks.clear_parts(pair, "target", 1 << 62, [partition]), pair.target, pair)


def _copy_as_executor(pair: Pair) -> None:
    _until_superseded(lambda partition: tasks.copy_part(pair, partition), pair.source, pair)


def _until_superseded(task: Callable[[Partition], object], url: StoreUrl, pair: Pair) -> None:
    with open_reader(url, pair.access) as reader:
        parts = reader.partitions(1)
    _freeze_at_a_write()
    try:
        for partition in parts:
            task(partition)
    except StoreError as error:
        os._exit(SUPERSEDED if isinstance(error, Superseded) else 1)


def _freeze_at_a_write() -> None:
    """Freeze this process right before a write, after all its checks."""
    writes = itertools.count(1)

    def write() -> None:
        if next(writes) == FROZEN_AT:
            # This thread by its own id: sent to the process, the signal may let it continue for a moment.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    submit, unary, write_stream = Connection.submit, OxiaConnection.unary, OxiaConnection.write_stream

    def submit_or_freeze(self: Connection, op: int, body: bytes) -> int:
        if op == wire.MULTI:
            write()
        return submit(self, op, body)

    def unary_or_freeze(self: OxiaConnection, shard: int, method: str, request: Any, answer: Any) -> Any:
        if method == "Write":
            write()
        return unary(self, shard, method, request, answer)

    def stream_or_freeze(
        self: OxiaConnection, shard: int, requests: Iterator[Any], *, lifetime: float | None = None
    ) -> Any:
        def pulled() -> Iterator[Any]:
            # Not the one that only opens the stream.
            yield next(requests)
            for request in requests:
                write()
                yield request

        return write_stream(self, shard, pulled(), lifetime=lifetime)

    Connection.submit = submit_or_freeze
    OxiaConnection.unary = unary_or_freeze
    OxiaConnection.write_stream = stream_or_freeze
