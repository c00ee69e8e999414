"""The steps of the bookie cluster migration that handle all ledgers, and the cluster that they are taken on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from activities.bookie_cluster import build as building
from activities.bookie_cluster import cleanup, registry, tail
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.precheck import SwitchPrecheckRun
from activities.lifecycle.context import ActivityContext
from bench.memory.scheduler import Scheduler, Steps
from clients.pulsar.formats_pb2 import LedgerInfo, ManagedLedgerInfo
from clients.store import Record
from clients.stores import Access, open_writer
from models.bookie_cluster.input import BookieClusterInput, Direction
from models.bookie_cluster.results import SwitchPrecheck
from models.bookie_cluster.updates import CleanupOrder
from models.lifecycle.claim import Attempt
from models.store_url import parse_store_url

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime

ResultT = TypeVar("ResultT")

#: In this order.
STEPS = ("register", "precheck", "build", "build again", "census", "tail", "full compare", "direct", "cleanup")
_LEDGERS_PER_TOPIC = 400


class _Switch:
    def __init__(self, runtime: Runtime, input: BookieClusterInput) -> None:
        self._runtime, self._input = runtime, input
        self._scheduler = Scheduler()

    def register(self) -> Mapping[str, float]:
        """Run REGISTER."""
        return {"registered": len(self._run(registry.register).added)}

    def precheck(self) -> Mapping[str, float]:
        """Run PRECHECK."""
        result = self._run(_precheck)
        assert not result.blockers, result.blockers
        assert result.survey is not None
        return {"ledgers": result.survey.ledgers, "references": result.survey.references}

    def build(self) -> Mapping[str, float]:
        """Run BUILD."""
        done = self._run(building.build, Direction.FORWARD)
        figures = {"copied": done.copied, "already verified": done.already_verified, "compared": done.compared}
        return {**figures, "failed": done.failed.count}

    def census(self) -> Mapping[str, float]:
        """Run the census of the rollback window."""
        result = self._run(cleanup.take_census)
        return {"to_delete": result.targets.ledgers}

    def tail(self) -> Mapping[str, float]:
        """Run SWITCH without brokers."""
        result = self._run(tail.copy_tail, Direction.FORWARD)
        return {"checked": result.checked, "references": result.references, "missing": result.missing.count}

    def full_compare(self) -> Mapping[str, float]:
        """Run SWITCH, and compare all entries again."""
        result = self._run(tail.copy_tail, Direction.FORWARD, full_verify=True)
        return {"checked": result.checked, "compared": result.copy_summary.compared}

    def direct(self) -> Mapping[str, float]:
        """Run the commit: brokers belong to the target."""
        self._run(registry.set_target, Direction.FORWARD)
        self._run(registry.flip_statuses)
        return {}

    def cleanup(self) -> Mapping[str, float]:
        """Run CLEANUP, step by step."""
        deleted, remaining = 0, 1
        order = CleanupOrder(src_cluster=self._input.source.name)
        while remaining:
            step = self._run(cleanup.delete_ledgers, order)
            deleted, remaining = deleted + step.deleted, step.remaining
            assert step.deleted, "a step deletes something"
        return {"deleted": deleted}

    def _run(self, step: Callable[..., ResultT], *args: object, **more: object) -> ResultT:
        execution = self._scheduler.next(self._input.model_copy(update=more))
        attempt = Attempt.of(execution, self._input.workflow_id, 1)
        return step(BookieClusterTask(self._runtime, execution, attempt, ActivityContext()), *args)


def _precheck(task: BookieClusterTask) -> SwitchPrecheck:
    return SwitchPrecheckRun(task).run()


def steps(runtime: Runtime, text: str) -> Steps:
    """Return the steps by name."""
    switch = _Switch(runtime, BookieClusterInput.model_validate_json(text))
    orders = (
        switch.register,
        switch.precheck,
        switch.build,
        switch.build,
        switch.census,
        switch.tail,
        switch.full_compare,
        switch.direct,
        switch.cleanup,
    )
    return dict(zip(STEPS, orders, strict=True))


def refer(store: str, ledgers: int) -> None:
    """Write topics whose managed ledgers name the ledgers from 1 on."""
    with open_writer(parse_store_url(store), Access(), keep_versions=False) as writer:
        for record in _topics(ledgers):
            writer.put(record, over=None)
        writer.flush()


def _topics(ledgers: int) -> Iterator[Record]:
    parent = b""
    for name in (b"managed-ledgers", b"bench", b"ns", b"persistent"):
        parent += b"/" + name
        yield _record(parent, b"")
    for first in range(1, ledgers + 1, _LEDGERS_PER_TOPIC):
        ids = range(first, min(first + _LEDGERS_PER_TOPIC, ledgers + 1))
        named = ManagedLedgerInfo(ledgerInfo=[LedgerInfo(ledgerId=id_, entries=1, size=400) for id_ in ids])
        yield _record(parent + b"/topic-%08d" % first, named.SerializeToString())


def _record(path: bytes, value: bytes) -> Record:
    return Record(path, value, version=0, count=0, owner=0, changed=0, children_changed=0)
