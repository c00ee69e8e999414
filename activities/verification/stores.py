"""Comparison of two metadata stores, record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from activities.verification.context import Comparison
from clients.verification.records import PATHS_AT_ONCE, Answer, RecordReader, StoredRecord, Withheld
from models.migration_flag import FLAG
from models.store_url import StoreUrl

METHOD = "path, value, version and counter of every record, one by one"

_COORDINATOR = FLAG.rpartition("/")[0]
_MOST_PENDING = 200
"""Differences that wait for a second look; more are looked at before the comparison continues."""

_LAYOUT = 3
"""Part of a position."""

_NEWER = "written in the target since the commit"
_CREATED = "created in the target since the commit"
_ABSENT = "not in the target after the commit: deleted there since, or never copied"
_EPHEMERAL = "held by a session"
_OWN = "of the migration's own coordination"
_CHANGING = "changed in the source while it was compared"


class _Sort(StrEnum):
    EQUAL = "equal"
    EXCLUDED = "excluded"
    DIFFERENT = "different"


class Verdict(NamedTuple):
    """Relation of two records of one path, with the reason."""

    sort: _Sort
    reason: str = ""


_EQUAL = Verdict(_Sort.EQUAL)


class StoreRules:
    """Says whether two records are equal, for a pair of stores.

    The target keeps the version of the source, except where a ZooKeeper follows an Oxia: versions start at 0 there. So
    after the commit a higher version shows that a service has written the record.

    Args:
        source: the old store.
        target: the new store.
        commit_ms: returns when the source says that the migration was committed, in milliseconds since 1970; 0 if it
            does not say.
    """

    def __init__(self, source: StoreUrl, target: StoreUrl, commit_ms: Callable[[], int] = lambda: 0) -> None:
        self._to_zookeeper = target.scheme == "zk"
        self._keeps_versions = source.scheme == "zk" or not self._to_zookeeper
        self._from_zookeeper = source.scheme == "zk"
        self._ask_commit = commit_ms

    @cached_property
    def _commit_ms(self) -> int:
        """The time of the commit, which is asked for after it."""
        return self._ask_commit()

    def judge(self, path: str, source: StoredRecord, target: StoredRecord | None, *, committed: bool) -> Verdict:
        """Return what a record of the source and its copy are to each other."""
        if source.is_ephemeral:
            return Verdict(_Sort.EXCLUDED, _EPHEMERAL)
        if target is None:
            return Verdict(_Sort.EXCLUDED, _ABSENT) if committed else Verdict(_Sort.DIFFERENT, "not in the target")
        if not (why := self._difference(path, source, target)):
            return _EQUAL
        if committed and self._is_newer(source, target):
            return Verdict(_Sort.EXCLUDED, _NEWER)
        return Verdict(_Sort.DIFFERENT, why)

    def judge_extra(self, target: StoredRecord, *, committed: bool) -> Verdict:
        """Return what a record is that only the target has."""
        if target.is_ephemeral:
            return Verdict(_Sort.EXCLUDED, _EPHEMERAL)
        if self._to_zookeeper and not self._from_zookeeper and not target.value and target.counter:
            # ZooKeeper needs a node for each parent, and Oxia has none.
            return Verdict(_Sort.EXCLUDED, "parents, which Oxia does not need")
        return Verdict(_Sort.EXCLUDED, _CREATED) if committed else Verdict(_Sort.DIFFERENT, "only in the target")

    def describe(self, path: str, source: StoredRecord | None) -> str:
        """Return a text that changes with each change of a record of the source that the target must show."""
        if source is None:
            return "absent"
        return f"{source.version} of {source.created_ms}, {self._least_counter(path, source)}"

    def _is_newer(self, source: StoredRecord, target: StoredRecord) -> bool:
        if target.is_ephemeral or target.version > (source.version if self._keeps_versions else 0):
            return True
        # A node that was deleted and created again counts its versions from 0.
        return self._to_zookeeper and target.version <= source.version and 0 < self._commit_ms < target.created_ms

    def _difference(self, path: str, source: StoredRecord, target: StoredRecord) -> str:
        if target.is_ephemeral:
            return "a session holds it in the target"
        if source.value != target.value:
            pairs = zip(source.value, target.value, strict=False)
            first = next((index for index, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
            where = f"from byte {first}" if first is not None else f"{len(source.value)} and {len(target.value)} bytes"
            return f"other value ({where})"
        if self._keeps_versions and source.version != target.version:
            return f"version {source.version}, and {target.version} in the target"
        if (least := self._least_counter(path, source)) > target.counter:
            return f"numbers of children continue at {target.counter} in the target, and at {least} in the source"
        return ""

    def _least_counter(self, path: str, source: StoredRecord) -> int:
        """Return what the target must have counted, so that no number of a sequential child is given twice."""
        # A parent of sequential children has no value, or is one of these.
        numbers = not source.value or path.startswith(("/ledgers/idgen", "/counters/"))
        if not numbers:
            return 0
        if self._from_zookeeper:
            return source.counter
        return source.counter + 1 if self._to_zookeeper else source.counter


class StoreComparison:
    """Compares two stores.

    Args:
        comparison: counts what was compared, and continues what an attempt before has compared.
        rules: of the pair of stores.
        source: the old store.
        target: the new store.
        scopes: paths to compare with everything beneath them; one empty path for everything.
    """

    def __init__(
        self,
        comparison: Comparison,
        rules: StoreRules,
        source: RecordReader,
        target: RecordReader,
        scopes: Sequence[str],
    ) -> None:
        self._comparison = comparison
        self._rules = rules
        self._source = source
        self._target = target
        self._scopes = scopes

    def run(self) -> None:
        """Compare every record of the source with the target, then look for records that only the target has."""
        tally = self._comparison.tally
        layout = f"{self._source.layout}, {self._target.layout}"
        if tally.position and tally.position[_LAYOUT] != layout:
            # The keys have another order now, and a position says nothing about it.
            tally = self._comparison.restart()
        passes = [(side, scope) for side in ("source", "target") for scope in self._scopes]
        done = (tally.position[0], tally.position[1]) if tally.position else None
        for side, scope in passes[passes.index(done) if done else 0 :]:
            after = tally.position[2] if (side, scope) == done else ""
            reader, compare = (self._source, self._compare) if side == "source" else (self._target, self._find_extra)
            for paths in reader.paths(scope, after):
                self._comparison.gate.check()
                compare([path for path in paths if not self._is_own(path, counts=side == "source")])
                position = [side, scope, paths[-1], layout]
                self._comparison.passed(position, len(paths) if side == "source" else 0)
                if len(tally.pending) > _MOST_PENDING:
                    self._decide()
        self._decide()

    def _is_own(self, path: str, *, counts: bool) -> bool:
        own = path == _COORDINATOR or path.startswith(f"{_COORDINATOR}/")
        if own and counts:
            self._comparison.tally.exclude(_OWN, printable_path(path))
        return own

    def _compare(self, paths: Sequence[str]) -> None:
        sources, targets = self._source.read(paths), self._target.read(paths)
        for path, source, target in zip(paths, sources, targets, strict=True):
            self._take(path, source, target, final=False)
        self._comparison.read(_size(sources) + _size(targets))

    def _find_extra(self, paths: Sequence[str]) -> None:
        sources = self._source.read(paths)
        extra = [path for path, source in zip(paths, sources, strict=True) if source is None]
        targets = self._target.read(extra) if extra else []
        for path, target in zip(extra, targets, strict=True):
            self._take(path, None, target, final=False)
        self._comparison.read(_size(sources) + _size(targets))

    def _decide(self) -> None:
        """Look at all pending differences again, and count those that last."""
        tally = self._comparison.tally
        if not tally.pending:
            return
        self._comparison.wait_before_recheck()
        seen_before = dict(tally.pending)
        paths = [*seen_before]
        for first in range(0, len(paths), PATHS_AT_ONCE):
            chunk = paths[first : first + PATHS_AT_ONCE]
            answers = [*zip(chunk, self._source.read(chunk), self._target.read(chunk), strict=True)]
            # Services may have moved since the last question, and written to the target before it was read.
            self._comparison.ask_again()
            for path, source, target in answers:
                del tally.pending[path]
                self._take(path, source, target, final=True, seen_before=seen_before[path])
        self._comparison.keep()

    def _take(self, path: str, source: Answer, target: Answer, *, final: bool, seen_before: str = "") -> None:
        """Count a pair of records, or keep it for a second look."""
        tally = self._comparison.tally
        shown = printable_path(path)
        if withheld := next((each for each in (source, target) if isinstance(each, Withheld)), None):
            tally.unreadable.add(f"{shown}: {withheld.reason}")
            return
        assert not isinstance(source, Withheld)
        assert not isinstance(target, Withheld)
        if source is None and target is None:
            return
        committed = self._comparison.committed
        if source is not None:
            verdict = self._rules.judge(path, source, target, committed=committed)
        else:
            assert target is not None
            verdict = self._rules.judge_extra(target, committed=committed)
        if verdict.sort is _Sort.EXCLUDED:
            tally.exclude(verdict.reason, shown)
        elif verdict.sort is _Sort.EQUAL and source is not None:
            tally.add_equal(_identity(path, source), len(source.value))
        elif not final:
            tally.pending[path] = self._rules.describe(path, source)
        elif self._rules.describe(path, source) != seen_before:
            tally.exclude(_CHANGING, shown)
        else:
            tally.differing.add(f"{shown}: {verdict.reason}")


def printable_path(path: str) -> str:
    """Return a path as text, however odd its bytes are."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _identity(path: str, record: StoredRecord) -> bytes:
    """Return bytes that no other record has."""
    name = path.encode(errors="surrogateescape")
    return b"%d %d %b %b" % (len(name), record.version, name, record.value)


def _size(records: Sequence[Answer]) -> int:
    return sum(len(record.value) for record in records if isinstance(record, StoredRecord))
