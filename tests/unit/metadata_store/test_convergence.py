"""The last copies before the commit, with doubles of the stores and of the clock."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.metadata_store import convergence, cutover
from activities.metadata_store.source_watch import SourceWatch
from models.lifecycle.failures import FailureKind
from spark.metadata_store.replica import CommitPoint, Followed
from tests.support.clients.claims import attempt_of

OWN, FOREIGN = b"/admin/policies/a", b"/tool/state"


class Scene:
    """A source in which paths change between the rounds of the commit.

    Attributes:
        dirty: the paths that each round finds, one after another; none when these are used up.
        seconds: how long each search for changes takes, one after another; no time when these are used up.
        copied: the paths that were copied, round by round.
        keeps_deleted: after the commit, the paths that change are deleted in the source, and kept in the target.
    """

    def __init__(self, dirty: list[set[bytes]], seconds: list[float]) -> None:
        self.dirty, self.seconds = dirty, seconds
        self.copied: list[set[bytes]] = []
        self.now = 100.0
        self.marks = 0
        self.contested, self.retained = set[bytes](), set[bytes]()
        self.keeps_deleted = False
        self.late_copies = SourceWatch(attempt_of()).late_copies

    def changes(self, *_: object) -> Any:
        """Search for changes; that takes time."""
        self.now += self.seconds.pop(0) if self.seconds else 0.0
        return SimpleNamespace(dirty=SimpleNamespace(paths=frozenset(self.dirty.pop(0) if self.dirty else ())))

    def late_changes(self, *_: object) -> Any:
        """Search for changes after the commit."""
        changes = self.changes()
        changes.dirty.mark, changes.gap = 0, ""
        changes.watch = self
        return changes

    def mark_clean(self, *_: object) -> None:
        """Take paths as equal."""

    def apply_untouched(self, paths: Collection[bytes], *_: object, **__: object) -> Followed:
        """Copy after the commit; or find that all paths were deleted in the source, and keep them."""
        if self.keeps_deleted:
            return Followed(0, 0, frozenset(), frozenset(paths))
        return Followed(len(paths), 0, frozenset(), frozenset())

    def converge(self, *arguments: Any) -> None:
        """Copy and compare."""
        self.apply(arguments[-1])

    def apply(self, paths: Collection[bytes]) -> None:
        """Copy."""
        self.copied.append(set(paths))

    def mark(self) -> int:
        """Return the next transaction."""
        self.marks += 1
        return self.marks

    @contextmanager
    def replica(self, _: object) -> Generator[Any]:
        """Yield a replica that notes the copied paths."""
        yield SimpleNamespace(apply=self.apply, highest=0)


def copy_until_equal(
    monkeypatch: pytest.MonkeyPatch, dirty: list[set[bytes]], seconds: list[float] | None = None
) -> Scene:
    """Copy until nothing is known to differ."""
    scene = Scene(dirty, seconds or [])

    def last_transaction(*_: object) -> int:
        return 1000 + len(scene.copied)

    def raise_floor(*_: object) -> int:
        return 0

    monkeypatch.setattr(cutover, "all_changes", scene.changes)
    monkeypatch.setattr(cutover, "converge", scene.converge)
    monkeypatch.setattr(cutover, "last_transaction", last_transaction)
    monkeypatch.setattr(cutover, "raise_floor", raise_floor)
    monkeypatch.setattr(cutover, "time", SimpleNamespace(monotonic=lambda: scene.now))
    task: Any = SimpleNamespace(input=SimpleNamespace(target_url=None), access=None, replica=scene.replica)
    flag: Any = SimpleNamespace(mark=scene.mark)
    pre: Any = SimpleNamespace(since_zxid=1, version_floor=0)
    followed = cutover._copy_until_equal(task, flag, pre)  # pyright: ignore[reportPrivateUsage]
    # Every change until this mark was copied, and everything that was copied is before this transaction of the target.
    assert followed.point == (scene.marks, 1000 + len(scene.copied))
    return scene


def task_of(epoch: int) -> Any:
    """Return an attempt of an execution of a step."""
    return SimpleNamespace(attempt=attempt_of(epoch=epoch))


def test_a_long_scan_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that must scan the source first, for as long as that takes, copies what it found and commits."""
    assert copy_until_equal(monkeypatch, [{OWN}], [3600.0]).copied == [{OWN}]


def test_long_rounds_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a minute, after which one more record has changed, end in the commit."""
    assert len(copy_until_equal(monkeypatch, [{OWN}, {OWN}, {OWN}], [60.0, 60.0, 60.0]).copied) == 3


def test_records_that_always_change_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of Pulsar's that change after every round end the step in bounded time."""
    with pytest.raises(ApplicationError, match="1 records are not copied yet: /admin/policies/a") as failed:
        copy_until_equal(monkeypatch, [{OWN, FOREIGN}] * 100, [1.0] * 100)
    assert failed.value.type == FailureKind.VERIFICATION_FAILED


def test_foreign_records_may_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign root that changes all the time does not prevent the commit, and what changed until then is copied."""
    assert copy_until_equal(monkeypatch, [{FOREIGN}] * 100, [1.0] * 100).copied == [{FOREIGN}] * 2
    assert copy_until_equal(monkeypatch, [{FOREIGN, OWN}] * 2 + [{FOREIGN}] * 100).copied == [{FOREIGN, OWN}] * 2 + [
        {FOREIGN}
    ]


def test_late_foreign_writes_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the commit, records that are not Pulsar's are copied, and do not count as a service that still writes."""
    scene = Scene([{FOREIGN}, {OWN, FOREIGN}], [])
    monkeypatch.setattr(convergence, "all_changes", scene.late_changes)
    replica: Any = scene
    for epoch, copied, quiet in ((1, 1, True), (2, 2, False)):
        late = convergence.follow_once(task_of(epoch), replica, CommitPoint(1, 1))
        assert (late.copied, late.foreign, late.quiet) == (copied, 1, quiet)


def test_a_repeated_check_reports_again_what_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the result of a check is lost, its next attempt reports what it copied; the next check does not."""
    scene = Scene([{OWN}, set(), {FOREIGN}, set()], [])
    monkeypatch.setattr(convergence, "all_changes", scene.late_changes)
    replica: Any = scene
    for epoch, copied, foreign, quiet in ((1, 1, 0, False), (1, 1, 0, True), (1, 2, 1, True), (2, 0, 0, True)):
        late = convergence.follow_once(task_of(epoch), replica, CommitPoint(1, 1))
        assert (late.copied, late.foreign, late.quiet) == (copied, foreign, quiet)


def test_a_repeated_check_reports_again_what_was_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the result of a check is lost, the next one reports what it kept, until that is in the source again."""
    scene = Scene([{OWN, FOREIGN}, set(), {OWN}, set()], [])
    monkeypatch.setattr(convergence, "all_changes", scene.late_changes)
    replica: Any = scene
    task = task_of(1)
    scene.keeps_deleted = True
    for expected in (2, 2):
        assert convergence.follow_once(task, replica, CommitPoint(1, 1)).not_deleted == expected
    scene.keeps_deleted = False
    for expected in (1, 1):
        assert convergence.follow_once(task, replica, CommitPoint(1, 1)).not_deleted == expected
