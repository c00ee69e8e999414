"""Copy and compare single paths: what changed since the bulk copy.

An attempt that was given up may wake up after its migration was committed. It must not write then, so each write names
the version that it replaces, and between reading that version and writing the fence is asked: it passes only where no
service writes to the target yet. Whatever a service wrote later has another version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from clients.closeable import Closeable
from clients.errors import StoreConflict, StoreContention, StoreDenied
from clients.store import ABSENT, Record, StoreWriter, Unreadable
from clients.stores import open_reader, open_writer
from spark.metadata_store.equivalence import Equivalence, migrates
from spark.metadata_store.spec import Pair


class Applied(NamedTuple):
    """What `Replica.apply` did; `ephemerals` are the paths that turned out to belong to sessions."""

    written: int
    deleted: int
    ephemerals: frozenset[bytes]


class Followed(NamedTuple):
    """What `Replica.apply_untouched` did.

    Attributes:
        contested: paths that services wrote in the target as well.
        kept: records with a value that are gone in the source, and that it was not to delete.
    """

    written: int
    deleted: int
    contested: frozenset[bytes]
    kept: frozenset[bytes]


class CommitPoint(NamedTuple):
    """Where the commit lies in the order of both stores.

    Attributes:
        source_zxid: the source's changes up to this transaction id were copied before the commit.
        target: what services write there comes behind this: a version id on Oxia, a transaction id on ZooKeeper.
    """

    source_zxid: int
    target: int


class Ephemeral(NamedTuple):
    """An ephemeral of the source.

    Attributes:
        path: of the record.
        owner: its session in the source.
        recreated: whether its owner has written it to the target since a mark, with its value of now. A failed attempt
            leaves ephemerals there, which prove nothing about this one.
    """

    path: bytes
    owner: int
    recreated: bool


AT_ONCE = 5_000
"""Records of both sides in memory at a time."""

Fence = Callable[[], object]
"""Raises StoreConflict where this attempt must not write any more."""


class Mirror(Closeable):
    """Compares single paths of both stores; cannot write. A context manager."""

    def __init__(self, pair: Pair) -> None:
        #: The highest version among the records of the source that were read.
        self.highest = 0
        self._pair = pair
        self._rules = Equivalence(pair.source, pair.target)
        with ExitStack() as opened:
            self._source = open_reader(pair.source, pair.access)
            opened.callback(self._source.close)
            self._target = open_reader(pair.target, pair.access)
            opened.callback(self._target.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._opened.close()

    def differences(self, paths: Iterable[bytes]) -> list[bytes]:
        """The paths at which the target is not what it must be."""
        return [path for path, mine, theirs in self._both(paths) if not self._as_wanted(mine, theirs)]

    def excess(self, paths: Iterable[bytes]) -> list[bytes]:
        """Those of these paths of the target that must not stand, since the source has nothing there that migrates."""
        return [
            path
            for path, mine, theirs in self._both(paths)
            if not (mine is not None and migrates(mine)) and not self._as_wanted(mine, theirs)
        ]

    def ephemerals(self, paths: Iterable[bytes], mark: int) -> list[Ephemeral]:
        """Return the ephemerals of the source among these paths.

        Args:
            paths: in the source.
            mark: of the target; see `clients.stores.write_mark`.
        """

        def is_written(mine: Record, theirs: Record | None) -> bool:
            if theirs is None or not theirs.owner or theirs.value != mine.value:
                return False
            # mutant: metadata-store/leftovers-count-as-ready
            return (theirs.changed if self._pair.target.scheme == "zk" else theirs.version) > mark

        return [
            Ephemeral(path, mine.owner, recreated=is_written(mine, theirs))
            for path, mine, theirs in self._both(paths)
            if mine is not None and mine.owner
        ]

    def _as_wanted(self, mine: Record | None, theirs: Record | None) -> bool:
        if mine is not None and migrates(mine):
            return theirs is not None and self._rules.equal(mine, theirs)
        return theirs is None or not migrates(theirs) or self._rules.may_stand_alone(theirs)

    def _both(
        self, paths: Iterable[bytes], *, before: Fence | None = None
    ) -> Iterator[tuple[bytes, Record | None, Record | None]]:
        """Path, record of the source and record of the target, by path, and a bounded part at a time.

        `before` is called when both sides were read, before anything is done with them.
        """
        ordered = sorted(set(paths))
        for begin in range(0, len(ordered), AT_ONCE):
            some = ordered[begin : begin + AT_ONCE]
            source, target = _readable(self._source.read(some)), _readable(self._target.read(some))
            self.highest = max(self.highest, *(one.version for one in source if one is not None and migrates(one)), 0)
            if before:
                # After the reads: where the fence still passes, no service has changed these records.
                before()  # mutant: metadata-store/no-fence-between-reading-and-writing
            yield from zip(some, source, target, strict=True)


class Replica(Mirror):
    """Brings single paths of the target to the state of the source; a context manager."""

    def __init__(self, pair: Pair, fence: Fence) -> None:
        super().__init__(pair)
        # Transaction ids of what was written here after the commit, by path.
        self._own: dict[bytes, int] = {}
        self._fence = fence
        try:
            self._writer = self._open_writer()
        except BaseException:
            super().close()
            raise

    def _open_writer(self) -> StoreWriter:
        return open_writer(
            self._pair.target, self._pair.access, keep_versions=self._rules.keeps_versions, guard=self._fence
        )

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._writer.close()
        super().close()

    def apply(self, paths: Iterable[bytes]) -> Applied:
        """Write what the source holds, delete what it does not; ephemerals on either side are left alone.

        Raises:
            StoreContention: another attempt of this step writes too.
            StoreConflict: the fence refuses.
        """
        written = 0
        doomed: list[tuple[bytes, int]] = []
        ephemerals: set[bytes] = set()
        for path, mine, theirs in self._both(paths, before=self._fence):
            if mine is not None and migrates(mine):
                if theirs is None or not self._rules.equal(mine, theirs):
                    with _contention():
                        # mutant: metadata-store/writes-over-anything
                        self._writer.put(self._rules.wanted(mine), over=theirs.version if theirs else ABSENT)
                    written += 1
                continue
            if mine is not None and mine.owner:
                ephemerals.add(path)
            if theirs is not None and migrates(theirs) and not self._rules.may_stand_alone(theirs):
                doomed.append((path, theirs.version))
        with _contention():
            self._writer.flush()
            # Children before parents: ZooKeeper deletes no node that has children.
            for path, version in sorted(doomed, key=lambda one: one[0].count(b"/"), reverse=True):
                self._writer.delete(path, expected=version)
            self._writer.flush()
        return Applied(written, len(doomed), frozenset(ephemerals))

    def gone(self, paths: Iterable[bytes], commit: CommitPoint) -> list[bytes]:
        """Those of these paths that `apply_untouched` would delete."""
        return [
            path
            for path, mine, theirs in self._both(paths)
            if not (mine is not None and migrates(mine))
            and not self._as_wanted(mine, theirs)
            and self._untouched(path, None, theirs, commit)
        ]

    def apply_untouched(self, paths: Iterable[bytes], commit: CommitPoint, *, deletions: bool = True) -> Followed:
        """After the commit: do what `apply` does, but only where no service wrote to the target meanwhile.

        Args:
            paths: what changed in the source.
            commit: tells what services wrote.
            deletions: whether what is gone in the source is deleted.

        Raises:
            StoreConflict: the fence refuses.
        """
        written = deleted = 0
        contested: set[bytes] = set()
        kept: set[bytes] = set()
        for path, mine, theirs in self._both(paths, before=self._fence):
            # A repeated attempt finds its own writes here, and must not call them contested.
            if self._as_wanted(mine, theirs):
                continue
            wanted = mine if mine is not None and migrates(mine) else None
            if not self._untouched(path, wanted, theirs, commit):
                contested.add(path)
            elif wanted is None and not deletions:
                # One without a value is mostly a container, which ZooKeeper removes when its last child is gone.
                if theirs is not None and theirs.value:
                    kept.add(path)
            elif not self._write_late(path, wanted, theirs):
                contested.add(path)
            elif wanted is None:
                deleted += 1
            else:
                written += 1
        return Followed(written, deleted, frozenset(contested), frozenset(kept))

    def _write_late(self, path: bytes, wanted: Record | None, theirs: Record | None) -> bool:
        """Write or delete a record that no service touched; false where one was first after all."""
        try:
            if wanted is not None:
                self._writer.put(self._rules.wanted(wanted), over=theirs.version if theirs else ABSENT)
            elif theirs is not None:
                self._writer.delete(path, expected=theirs.version)
            # Each by itself: a conflict is then about this path alone.
            done = self._writer.flush()
        except StoreConflict:
            # A writer that has failed repeats its error with every call.
            self._writer.close()
            self._writer = self._open_writer()
            return False
        # Nothing done: a record that must not stand there yet, or that has children by now.
        if done and wanted is not None:
            self._remember(wanted)
        return bool(done)

    def _untouched(self, path: bytes, mine: Record | None, theirs: Record | None, commit: CommitPoint) -> bool:
        """Whether no service wrote, or deleted, a record of the target since the commit."""
        if theirs is None:
            # Copied before the commit and the same since, so that somebody deleted the copy. What is newer may be new.
            # mutant: metadata-store/deleted-copies-are-created-again
            return mine is None or mine.changed > commit.source_zxid
        if not self._rules.target_is_zookeeper:
            return theirs.version <= commit.target  # mutant: metadata-store/late-writes-over-services
        return theirs.changed <= commit.target or theirs.changed == self._own.get(path)

    def _remember(self, written: Record) -> None:
        """Note what was written after the commit: a later change of the same record is not contested by it."""
        if self._rules.target_is_zookeeper:
            (found,) = _readable(self._target.read([written.path]))
            if found is not None and self._rules.equal(written, found):
                self._own[written.path] = found.changed


@contextmanager
def _contention() -> Generator[None]:
    try:
        yield
    except StoreConflict as error:
        raise StoreContention(
            f"another attempt of this step writes to the target too ({error})", path=error.path
        ) from error


def _readable(found: list[Record | Unreadable | None]) -> list[Record | None]:
    for record in found:
        if isinstance(record, Unreadable):
            name = record.path.decode(errors="replace")
            raise StoreDenied(f"{name} cannot be read: {record.reason}", path=record.path)
    return [record for record in found if not isinstance(record, Unreadable)]
