"""The order in which an executor's task asks and acts; clusters and bookies are doubles here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.errors import Superseded
from spark.bookie_cluster.spec import Batch
from spark.bookie_cluster.tasks import copy_batches


class Log:
    """Log of the questions to the fence and of the work done; the fence refuses from a chosen question on."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refused_from = 1_000

    def check(self, size: int) -> None:
        """Ask the fence."""
        assert size == 0
        self.refused_from -= 1
        self.done.append("ask")
        if self.refused_from < 0:
            raise Superseded("a newer attempt has begun")

    def recover(self, ids: Sequence[int]) -> list[CopyOutcome]:
        """Recover all but ledger 7."""
        self.done.append(f"recover {len(ids)}")
        return [CopyOutcome(7, Verdict.UNREADABLE)] if 7 in ids else []

    def copy(self, ids: Sequence[int], *, verify: bool, check: object, begun: object) -> list[CopyOutcome]:
        """Copy with the fence at hand, and compare."""
        assert verify
        assert check == self.check
        assert begun == {}
        self.done.append(f"copy {list(ids)}")
        return []

    def run(self, unit: Sequence[Batch]) -> None:
        """Run the units as a task does."""
        copy_batches(unit, self.check, self.recover, self.copy)


@pytest.fixture
def log() -> Log:
    """A task whose work is only noted; ledger 7 cannot be recovered."""
    return Log()


def batch(*ids: int, recover: bool) -> Batch:
    """Return a batch of these ledgers."""
    return Batch(ids, 0, recover)


def test_the_fence_comes_before_each_recovery(log: Log) -> None:
    """A superseded attempt begins no recovery, which would stop writers; what it skipped counts as not copied."""
    unit = [batch(*range(70), recover=True), batch(100, recover=False)]
    log.run(unit)
    remaining = [number for number in range(70) if number != 7]
    assert log.done == ["ask", "recover 64", "ask", "recover 6", "ask", f"copy {remaining}", "ask", "copy [100]"]


@pytest.mark.parametrize(("passes", "last"), [(0, None), (1, "recover 64"), (2, "recover 6"), (3, "copy")])
def test_a_late_task_ends_at_its_next_step(log: Log, passes: int, last: str | None) -> None:
    """Nothing is recovered or copied after the first refusal."""
    log.refused_from = passes
    with pytest.raises(Superseded):
        log.run([batch(*range(70), recover=True), batch(100, recover=False)])
    assert log.done[-1] == "ask"
    assert len(log.done) == 2 * passes + 1
    assert last is None or log.done[-2].startswith(last)
