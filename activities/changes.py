"""Copy and compare single paths: what changed since the bulk copy."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

from clients.access import open_reader, open_writer
from clients.equivalence import Equivalence, migrates
from clients.errors import StoreDenied
from clients.store import Record, Unreadable
from spark.plan import Pair


class Applied(NamedTuple):
    """What `Replica.apply` did; `ephemerals` are the paths that turned out to belong to sessions."""

    written: int
    deleted: int
    ephemerals: frozenset[bytes]


class Replica:
    """Brings single paths of the target to the state of the source; a context manager."""

    def __init__(self, pair: Pair) -> None:
        self._rules = Equivalence(pair.source, pair.target)
        with ExitStack() as opened:
            self._source = open_reader(pair.source, pair.access)
            opened.callback(self._source.close)
            self._target = open_reader(pair.target, pair.access)
            opened.callback(self._target.close)
            self._writer = open_writer(pair.target, pair.access, keep_versions=self._rules.keeps_versions)
            opened.callback(self._writer.close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def apply(self, paths: Iterable[bytes]) -> Applied:
        """Write what the source holds, delete what it does not; ephemerals on either side are left alone."""
        ordered = sorted(set(paths))
        source, target = self._both(ordered)
        written = 0
        doomed: list[bytes] = []
        ephemerals: set[bytes] = set()
        for path, mine, theirs in zip(ordered, source, target, strict=True):
            if mine is not None and migrates(mine):
                if theirs is None or not self._rules.equal(mine, theirs):
                    self._writer.put(self._rules.wanted(mine), only_if_absent=False)
                    written += 1
                continue
            if mine is not None and mine.owner:
                ephemerals.add(path)
            if theirs is not None and migrates(theirs) and not self._rules.may_stand_alone(theirs):
                doomed.append(path)
        self._writer.flush()
        for path in sorted(doomed, key=lambda path: path.count(b"/"), reverse=True):
            self._writer.delete(path)
        self._writer.flush()
        return Applied(written, len(doomed), frozenset(ephemerals))

    def differences(self, paths: Iterable[bytes]) -> list[bytes]:
        """The paths at which the target is not what it shall be."""
        ordered = sorted(set(paths))
        source, target = self._both(ordered)
        return [
            path
            for path, mine, theirs in zip(ordered, source, target, strict=True)
            if not self._as_wanted(mine, theirs)
        ]

    def missing_ephemerals(self, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
        """Ephemerals of the source that do not stand in the target with a session, with their owners in the source."""
        ordered = sorted(set(paths))
        source, target = self._both(ordered)
        return [
            (path, mine.owner)
            for path, mine, theirs in zip(ordered, source, target, strict=True)
            if mine is not None and mine.owner and not (theirs is not None and theirs.owner)
        ]

    def _as_wanted(self, mine: Record | None, theirs: Record | None) -> bool:
        if mine is not None and migrates(mine):
            return theirs is not None and self._rules.equal(mine, theirs)
        return theirs is None or not migrates(theirs) or self._rules.may_stand_alone(theirs)

    def _both(self, paths: list[bytes]) -> tuple[list[Record | None], list[Record | None]]:
        return _readable(self._source.read(paths)), _readable(self._target.read(paths))


def _readable(found: list[Record | Unreadable | None]) -> list[Record | None]:
    for record in found:
        if isinstance(record, Unreadable):
            raise StoreDenied(f"{record.path.decode(errors='replace')} cannot be read: {record.reason}")
    return [record for record in found if not isinstance(record, Unreadable)]
