"""The report about ledgers whose unfinished copies stay in the target; store and executors are doubles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import Verified
from activities.bookie_cluster.progress import SwitchProgress
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from spark.bookie_cluster.spec import Batch
from spark.engine import SparkEngine
from tests.support.bookie_cluster.in_memory import MemorySwitch, answering, opened
from tests.support.bookie_cluster.records import by_id, ledger

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

OUTCOMES = {
    1: CopyOutcome(1, Verdict.UNREADABLE, detail="no answer", transient=True, begun=Begun(-1, 0, 5)),
    2: CopyOutcome(2, Verdict.NOT_RECOVERED, detail="no answer", transient=True),
}


class Engine(SparkEngine):
    """Double of executors that get no answer from bookies."""

    def __init__(self) -> None:
        super().__init__("local")

    def width(self, *, tag: str) -> int:
        """Return how many tasks run at once."""
        return 1

    def run(
        self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str, urgent: bool = False
    ) -> list[ResultT]:
        """Return the outcomes of some units."""
        units = cast("Sequence[Sequence[Batch]]", items)
        outcomes = [[OUTCOMES[ledger_id] for batch in unit for ledger_id in batch.ledger_ids] for unit in units]
        return cast("list[ResultT]", outcomes)


class _NoLedgers:
    """A cluster without a ledger."""

    def read(self, ids: Sequence[int]) -> list[None]:
        """Return nothing for each."""
        return [None] * len(ids)


def test_a_half_copied_ledger_is_named_as_one() -> None:
    """The reason of a failure says where an open copy stays, which brokers would take for the whole ledger."""
    switch = MemorySwitch(Engine())
    task = switch.task()
    task.ledgers = answering(lambda: opened(_NoLedgers()))
    registry = switch.registry(task.attempt)
    registry.claim.renew()
    copier = LedgerCopier(task, SwitchProgress(task, registry), Verified(), urgent=True)
    copier.copy(by_id(ledger(number) for number in (1, 2)))
    assert 60 <= switch.context.now < 65, "bookies are waited for, and not for long"
    assert "its open copy stays in b" in copier.failed[1]
    assert "its open copy" not in copier.failed[2]
