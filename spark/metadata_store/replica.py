"""Copy and compare single paths: what changed since the bulk copy.

An attempt that was given up may wake up after its migration was committed, and must not write then. So each write names
the version that it replaces, and the fence is checked between the read of that version and the write. The fence passes
only while no service writes to the target yet; a record that a service wrote later has another version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from clients.closeable import Closeable
from clients.errors import RecordNotWritable, StoreConflict, StoreContention, StoreDenied
from clients.store import ABSENT, Record, StoreWriter, Unreadable
from clients.stores import open_reader, open_writer
from spark.metadata_store.equivalence import Equivalence, migrates
from spark.metadata_store.spec import Pair


class Applied(NamedTuple):
    """Result of `Replica.apply`; `ephemerals` are the paths that turned out to belong to sessions."""

    written: int
    deleted: int
    ephemerals: frozenset[bytes]


class Followed(NamedTuple):
    """Result of `Replica.apply_untouched`.

    Attributes:
        contested: paths that were written after the commit in the source, and by services in the target; also what the
            target cannot hold.
        retained: records with a value that the source no longer has, and that were not to be deleted.
    """

    written: int
    deleted: int
    contested: frozenset[bytes]
    retained: frozenset[bytes]


class CommitPoint(NamedTuple):
    """Position of the commit in the order of both stores.

    Attributes:
        source_zxid: the source's changes up to this transaction id were copied before the commit.
        target: writes of services in the target come after this: a version id in Oxia, a transaction id in ZooKeeper.
    """

    source_zxid: int
    target: int


class Ephemeral(NamedTuple):
    """An ephemeral of the source, and whether the target has it.

    Attributes:
        path: path of the record.
        owner: its session in the source.
        recreated: whether its owner has written it to the target after a mark, with its current value. A failed attempt
                leaves ephemerals there, which prove nothing about this one.
    """

    path: bytes
    owner: int
    recreated: bool


BATCH_SIZE = 5_000
"""Most records of each side in memory at a time."""

Fence = Callable[[], object]
"""Check that raises StoreConflict if this attempt must no longer write."""


class Mirror(Closeable):
    """Read-only comparison of single paths of both stores; a context manager."""

    def __init__(self, pair: Pair) -> None:
        #: Highest version among the source's records that were read.
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
        """Close the connections; may be called twice."""
        self._opened.close()

    def differences(self, paths: Iterable[bytes]) -> list[bytes]:
        """Return the paths at which the target differs from what it must hold."""
        return [path for path, source, target in self._both(paths) if not self._as_wanted(source, target)]

    def excess(self, paths: Iterable[bytes]) -> list[bytes]:
        """Return those of these paths that the target must not hold: the source has nothing to migrate there."""
        return [
            path
            for path, source, target in self._both(paths)
            if not (source is not None and migrates(source)) and not self._as_wanted(source, target)
        ]

    def ephemerals(self, paths: Iterable[bytes], mark_of: Callable[[int], int]) -> list[Ephemeral]:
        """Return the ephemerals of the source among these paths.

        Args:
            paths: in the source.
            mark_of: returns the mark of a shard of the target; see `clients.stores.write_marks`.
        """

        def is_written(source: Record, target: Record | None) -> bool:
            if target is None or not target.owner or target.value != source.value:
                return False
            mark = mark_of(self._target.shard_of(target.path))  # mutant: metadata-store/one-mark-for-all-shards
            # mutant: metadata-store/leftovers-count-as-ready
            return (target.changed if self._pair.target.scheme == "zk" else target.version) > mark

        return [
            Ephemeral(path, source.owner, recreated=is_written(source, target))
            for path, source, target in self._both(paths)
            if source is not None and source.owner
        ]

    def _as_wanted(self, source: Record | None, target: Record | None) -> bool:
        if source is not None and migrates(source):
            return target is not None and self._rules.equal(source, target)
        return target is None or not migrates(target) or self._rules.may_exist_alone(target)

    def _both(
        self, paths: Iterable[bytes], *, before: Fence | None = None
    ) -> Iterator[tuple[bytes, Record | None, Record | None]]:
        """Yield path, record of the source and record of the target, sorted by path, one batch in memory at a time.

        `before` is called after both sides were read and before the caller sees them.
        """
        ordered = sorted(set(paths))
        for start in range(0, len(ordered), BATCH_SIZE):
            batch = ordered[start : start + BATCH_SIZE]
            source, target = _readable(self._source.read(batch)), _readable(self._target.read(batch))
            self.highest = max(self.highest, *(record.version for record in source if record and migrates(record)), 0)
            if before:
                # After the reads: if the fence still passes, no service has changed these records.
                before()  # mutant: metadata-store/no-fence-between-reading-and-writing
            yield from zip(batch, source, target, strict=True)


class Replica(Mirror):
    """Updates single paths of the target to the state of the source; a context manager.

    Args:
        pair: both stores.
        fence: asked between the read of a record and its write.
        late_writes: our writes to a ZooKeeper after the commit: path and transaction id. Later ones are added. None
            before the commit.
    """

    def __init__(self, pair: Pair, fence: Fence, late_writes: dict[bytes, int] | None = None) -> None:
        super().__init__(pair)
        self._committed = late_writes is not None
        self._late_writes = {} if late_writes is None else late_writes
        self._fence = fence
        try:
            self._writer = self._open_writer()
        except BaseException:
            super().close()
            raise

    def _open_writer(self) -> StoreWriter:
        return open_writer(
            self._pair.target,
            self._pair.access,
            keep_versions=self._rules.keeps_versions,
            guard=self._fence,
            shared=self._committed,
        )

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._writer.close()
        super().close()

    def apply(self, paths: Iterable[bytes]) -> Applied:
        """Write what the source has and delete what it lacks; leave ephemerals of both sides alone.

        Raises:
            StoreContention: another attempt of this step writes too.
            StoreConflict: the fence refuses.
        """
        written = 0
        to_delete: list[tuple[bytes, int]] = []
        ephemerals: set[bytes] = set()
        for path, source, target in self._both(paths, before=self._fence):
            if source is not None and migrates(source):
                if target is None or not self._rules.equal(source, target):
                    with _contention():
                        # mutant: metadata-store/writes-over-anything
                        self._writer.put(self._rules.wanted(source), over=target.version if target else ABSENT)
                    written += 1
                continue
            if source is not None and source.owner:
                ephemerals.add(path)
            if target is not None and migrates(target) and not self._rules.may_exist_alone(target):
                to_delete.append((path, target.version))
        with _contention():
            self._writer.flush()
            # Children before parents: ZooKeeper does not delete a node that has children.
            for path, version in sorted(to_delete, key=lambda deletion: deletion[0].count(b"/"), reverse=True):
                self._writer.delete(path, expected=version)
            self._writer.flush()
        return Applied(written, len(to_delete), frozenset(ephemerals))

    def gone(self, paths: Iterable[bytes], commit: CommitPoint) -> list[bytes]:
        """Return those of these paths that `apply_untouched` would delete."""
        return [
            path
            for path, source, target in self._both(paths)
            if not (source is not None and migrates(source))
            and not self._as_wanted(source, target)
            and self._untouched(path, None, target, commit)
        ]

    def apply_untouched(self, paths: Iterable[bytes], commit: CommitPoint, *, deletions: bool = True) -> Followed:
        """Apply changes after the commit as `apply` does, but only where no service has written to the target since.

        Args:
            paths: paths that changed in the source.
            commit: position of the commit, by which writes of services are recognized.
            deletions: whether to delete what the source no longer has.

        Raises:
            StoreConflict: the fence refuses.
        """
        written = deleted = 0
        contested: set[bytes] = set()
        retained: set[bytes] = set()
        for path, source, target in self._both(paths, before=self._fence):
            # A repeated attempt sees its own writes here, which are not contested.
            if self._as_wanted(source, target):
                continue
            wanted = source if source is not None and migrates(source) else None
            conflicts = contested
            if self._untouched(path, wanted, target, commit):
                if wanted is None and not deletions:
                    conflicts = retained
                elif self._write_late(path, wanted, target):
                    written += wanted is not None
                    deleted += wanted is None
                    continue
            if self._is_late(wanted, target, commit):  # mutant: metadata-store/what-was-not-written-late-is-contested
                conflicts.add(path)
        return Followed(written, deleted, frozenset(contested), frozenset(retained))

    def _write_late(self, path: bytes, wanted: Record | None, target: Record | None) -> bool:
        """Write or delete a record that no service touched; return False if a service was faster.

        Also False if the target cannot hold the record.

        Raises:
            StoreConflict: the fence refuses.
        """
        try:
            if wanted is not None:
                self._writer.put(self._rules.wanted(wanted), over=target.version if target else ABSENT)
            elif target is not None:
                self._writer.delete(path, expected=target.version)
            # Flushed one by one, so that a conflict is about this path.
            done = self._writer.flush()
        # One record that the target cannot hold must not stop the copies of all others.
        except (StoreConflict, RecordNotWritable):  # mutant: metadata-store/one-late-write-stops-all-others
            # A late attempt knows nothing of this path, and leaves it to the newest one.
            self._fence()  # mutant: metadata-store/a-late-attempt-takes-its-fence-for-a-conflict
            # A writer that has failed repeats its error with every call.
            self._writer.close()
            self._writer = self._open_writer()
            return False
        # Not done: the record must not exist there yet, or has children by now.
        if done and wanted is not None:
            self._remember(wanted)
        return bool(done)

    def _is_late(self, wanted: Record | None, target: Record | None, commit: CommitPoint) -> bool:
        """Return whether the source was changed after the commit in a way that the target's record does not show."""
        if wanted is None:
            # A node without a value is usually a container, which ZooKeeper removes after its last child.
            return target is not None and bool(target.value)
        if wanted.changed > commit.source_zxid:
            return True
        # Only children came or went, such as those of sessions that end.
        return target is not None and target.count < self._rules.least_count(wanted)

    def _untouched(self, path: bytes, source: Record | None, target: Record | None, commit: CommitPoint) -> bool:
        """Return whether no service wrote or deleted a record of the target since the commit."""
        if target is None:
            # Copied before the commit and unchanged since: a service deleted the copy. A newer record may be new.
            # mutant: metadata-store/deleted-copies-are-created-again
            return source is None or source.changed > commit.source_zxid
        if not self._rules.target_is_zookeeper:
            return target.version <= commit.target  # mutant: metadata-store/late-writes-over-services
        return target.changed <= commit.target or target.changed == self._late_writes.get(path)

    def _remember(self, written: Record) -> None:
        """Note a write after the commit, so that a later change of the same record is not contested by it."""
        if self._rules.target_is_zookeeper:
            (stored,) = _readable(self._target.read([written.path]))
            if stored is not None and self._rules.equal(written, stored):
                self._late_writes[written.path] = stored.changed


@contextmanager
def _contention() -> Generator[None]:
    try:
        yield
    except StoreConflict as error:
        raise StoreContention(
            f"another attempt of this step writes to the target too ({error})", path=error.path
        ) from error


def _readable(records: list[Record | Unreadable | None]) -> list[Record | None]:
    for record in records:
        if isinstance(record, Unreadable):
            name = record.path.decode(errors="replace")
            raise StoreDenied(f"{name} cannot be read: {record.reason}", path=record.path)
    return [record for record in records if not isinstance(record, Unreadable)]
