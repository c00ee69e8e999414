"""The steps of the metadata store migration that handle the whole tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.metadata_store import catch_up as catching_up
from activities.metadata_store import cleanup, cutover, preparation
from activities.metadata_store import pre_copy as copying
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.precheck import PrecheckRun
from bench.memory.scheduler import Scheduler, Steps
from clients.store import Record
from clients.stores import Access, open_reader, open_writer
from models.lifecycle.claim import Attempt
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.results import PreCopy
from models.store_url import parse_store_url
from spark.metadata_store import jobs
from spark.metadata_store.equivalence import migrates

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime


ResultT = TypeVar("ResultT")

#: In this order.
STEPS = ("precheck", "copy", "copy again", "scan for changes", "prepare", "verify", "complete", "cleanup")


_PARTS = 256


class _Migration:
    def __init__(self, runtime: Runtime, input: MetadataStoreInput) -> None:
        self._runtime, self._input = runtime, input
        self._scheduler = Scheduler()
        self._records = 0
        self._pre: PreCopy | None = None

    def precheck(self) -> Mapping[str, float]:
        """Run PRECHECK."""

        def run(task: MetadataStoreTask) -> Mapping[str, float]:
            check = PrecheckRun(task.input, task.workflow_id, task.access, task.admin, lambda: None)
            result = check.run(task.engine, task.pair, tag=task.tag())
            assert not result.blockers, result.blockers
            assert result.survey is not None
            self._records = result.survey.records
            return {"records": result.survey.records}

        return self._run(run)

    def copy(self) -> Mapping[str, float]:
        """Run PRE_COPY, and a second attempt that repairs the copy."""
        pre = self._pre = self._run(lambda task: copying.pre_copy(task, self._records))
        return {"records": pre.copied, "compared": pre.compared, "differed": pre.repaired}

    def scan(self) -> Mapping[str, float]:
        """Run CATCH_UP on a worker that did not watch the source from the start."""
        self._run(MetadataStoreTask.forget_watch)
        result = self._run(lambda task: catching_up.catch_up(task, self._copied, 0.0))
        return {"changed": result.changed}

    def prepare(self) -> Mapping[str, float]:
        """Run PREPARATION and COPYING."""
        self._run(preparation.prepare)
        changes = self._run(lambda task: cutover.copy_changes(task, self._copied))
        return {"changed": changes.changed}

    def verify(self) -> Mapping[str, float]:
        """Run VERIFY of everything."""
        result = self._run(lambda task: cutover.verify(task, self._copied))
        return {"compared": result.compared, "differed": result.repaired}

    def complete(self) -> Mapping[str, float]:
        """Run COMPLETED."""
        done = self._run(lambda task: cutover.complete(task, self._copied))
        return {"late": done.late_copied}

    def cleanup(self) -> Mapping[str, float]:
        """Run CLEANUP, step by step."""
        removed, remaining = 0, 1

        def run(task: MetadataStoreTask) -> tuple[int, int]:
            cleanup.take_source(task)
            limit = task.input.cleanup_limit
            return jobs.clear(task.engine, task.fenced_pair, "source", limit=limit, tag=task.tag())

        while remaining:
            more, remaining = self._run(run)
            removed += more
        return {"removed": removed}

    @property
    def _copied(self) -> PreCopy:
        assert self._pre is not None, "it was copied"
        return self._pre

    def _run(self, step: Callable[[MetadataStoreTask], ResultT]) -> ResultT:
        execution = self._scheduler.next(self._input)
        attempt = Attempt.of(execution, self._input.workflow_id, 1)
        return step(MetadataStoreTask(self._runtime, execution, attempt, ActivityContext()))


def steps(runtime: Runtime, text: str) -> Steps:
    """Return the steps by name."""
    migration = _Migration(runtime, MetadataStoreInput.model_validate_json(text))
    orders = (
        migration.precheck,
        migration.copy,
        migration.copy,
        migration.scan,
        migration.prepare,
        migration.verify,
        migration.complete,
        migration.cleanup,
    )
    return dict(zip(STEPS, orders, strict=True))


def damage(source: str, target: str, records: int) -> None:
    """Write another value over so many migrated records of the target."""
    access, remaining = Access(), records
    with (
        open_reader(parse_store_url(source), access) as reader,
        open_writer(parse_store_url(target), access, keep_versions=True) as writer,
    ):
        for partition in reader.partitions(_PARTS):
            for batch in reader.scan(partition):
                for record in batch[:remaining]:
                    if isinstance(record, Record) and migrates(record) and record.value:
                        writer.put(record._replace(value=b"damaged"), over=None)
                        remaining -= 1
        writer.flush()
