"""Watches of sources: the changes in the source of a running migration that a worker process has seen."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clients.closeable import Closeable
from clients.errors import StoreUnreachable, Superseded
from clients.zookeeper.watch import ChangeFeed
from models.lifecycle.claim import Attempt
from spark.metadata_store.equivalence import is_coordination


class DirtyPaths(NamedTuple):
    """Changed paths that are not known to be equal in the target.

    Attributes:
        paths: all dirty paths.
        mark: later changes have a higher mark.
    """

    paths: frozenset[bytes]
    mark: int


@dataclass
class LateCopies:
    """Late writes that one execution of a step copied, over all of its attempts.

    Attributes:
        epoch: of the execution.
        services: writes to records of Pulsar.
        tools: writes to other records.
    """

    epoch: int
    services: int = 0
    tools: int = 0


class SourceWatch(Closeable):
    """The changes of a source since a moment; lost with the process, and then found again by a scan.

    An attempt that Temporal gave up may run next to a newer one in the same process. So a path is marked clean only up
    to the mark of its comparison, and a gap is closed only for the feed that ran during the scan.

    Args:
        owner: the attempt that created it.
    """

    def __init__(self, owner: Attempt) -> None:
        self.owner = owner
        #: Copies of late writes in a ZooKeeper target: path and transaction id. No service wrote these records.
        self.late_writes: dict[bytes, int] = {}
        #: Paths that were written on both sides after the commit.
        self.contested: set[bytes] = set()
        #: Paths that are gone in the source, and were not deleted in the target.
        self.retained: set[bytes] = set()
        self._late_copies = LateCopies(owner.epoch)
        self._lock = threading.RLock()
        self._feed: ChangeFeed | None = None
        self._missed = "this worker did not watch the source from the start"
        self._dirty: dict[bytes, int] = {}
        self._mark = 0
        self._ephemerals: set[bytes] = set()

    def gap(self) -> str:
        """Return why changes may have been missed; empty if none were."""
        with self._lock:
            # mutant: metadata-store/a-broken-feed-is-no-gap
            return self._missed or (self._feed.gap if self._feed else None) or ""

    def restart(self, feed: ChangeFeed, missed: str) -> int:
        """Continue with a new feed.

        Args:
            feed: not started yet.
            missed: why earlier changes must be found by a scan; empty if there are none.

        Returns:
            The transaction id from which on the feed reports all changes.
        """
        with self._lock:
            self.close()
            # If the feed does not start, the gap stays, and the next attempt tries another feed.
            # mutant: metadata-store/a-dead-feed-is-no-gap
            self._feed, self._missed = None, missed or "the watch of the source could not be set"
            since = feed.start()
            self._feed, self._missed = feed, missed
            return since

    def add(self, paths: Iterable[bytes]) -> None:
        """Add paths at which the target is known to differ."""
        with self._lock:
            self._note(paths)

    def fill(self, feed: ChangeFeed, paths: Iterable[bytes]) -> None:
        """Add the paths that a scan found; close the gap if this feed ran from before the scan until now."""
        with self._lock:
            self._note(paths)
            # A newer feed has its own gap, which this scan may not cover.
            if self._feed is feed:  # mutant: metadata-store/another-scan-closes-the-gap
                self._missed = ""

    def collect(self, timeout: float) -> DirtyPaths:
        """Add every change that was committed before this call; return all dirty paths.

        Args:
            timeout: seconds.

        Raises:
            StoreUnreachable: the source did not confirm in time that it has reported everything.
        """
        with self._lock:
            # A broken feed reports nothing more: `gap` shows it, and a scan finds what it missed.
            if self._feed is not None and not self._feed.gap:
                self._drain(self._feed, timeout)
            return DirtyPaths(frozenset(self._dirty), self._mark)

    def mark_clean(self, paths: Iterable[bytes], mark: int) -> None:
        """Mark paths that are equal in the target, by a comparison that started after `collect` returned this mark."""
        with self._lock:
            for path in paths:
                # A path with a newer mark changed again: the comparison may have read its previous state.
                if self._dirty.get(path, mark + 1) <= mark:  # mutant: metadata-store/a-late-comparison-cleans
                    del self._dirty[path]

    def changed_after(self, mark: int) -> frozenset[bytes]:
        """Return the dirty paths that changed after `collect` returned this mark, as far as collected."""
        with self._lock:
            return frozenset(path for path, path_mark in self._dirty.items() if path_mark > mark)

    def changed_until(self, mark: int) -> frozenset[bytes]:
        """Return the dirty paths that did not change after `collect` returned this mark."""
        with self._lock:
            return frozenset(path for path, path_mark in self._dirty.items() if path_mark <= mark)

    def late_copies(self, epoch: int) -> LateCopies:
        """Return the count of late writes that an execution of a step has copied; its next attempt continues it."""
        if self._late_copies.epoch != epoch:
            self._late_copies = LateCopies(epoch)
        return self._late_copies

    @property
    def ephemerals(self) -> frozenset[bytes]:
        """Paths at which ephemerals of the source were seen."""
        with self._lock:
            return frozenset(self._ephemerals)

    def add_ephemerals(self, paths: Iterable[bytes]) -> None:
        """Add paths at which ephemerals were seen."""
        with self._lock:
            self._ephemerals.update(paths)

    def close(self) -> None:
        """End the feed."""
        with self._lock:
            if self._feed is not None:
                self._feed.close()

    def _drain(self, feed: ChangeFeed, timeout: float) -> None:
        try:
            self._note(feed.drain(timeout))
        except StoreUnreachable:
            # A broken feed is a gap, which the caller checks afterwards; this call has not failed.
            if not feed.gap:
                raise

    def _note(self, paths: Iterable[bytes]) -> None:
        self._mark += 1
        # Our own claims change during the migration; the coordination subtree is never copied.
        # mutant: metadata-store/our-own-claim-is-a-change
        self._dirty.update((path, self._mark) for path in paths if not is_coordination(path))


class Watches(Closeable):
    """The watches of a worker process, one for each run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, SourceWatch] = {}

    def of(self, attempt: Attempt) -> SourceWatch:
        """Return the watch of an attempt's run; a new one with a gap if this process has none."""
        with self._lock:
            return self._open.get(attempt.run_id) or self._add(attempt)

    def renew(self, attempt: Attempt) -> SourceWatch:
        """Return a new watch with a gap, in place of this run's watch.

        Raises:
            Superseded: a newer attempt created the current one.
        """
        with self._lock:
            current = self._open.get(attempt.run_id)
            # An attempt that Temporal gave up may still run in this process; it must not replace the newer one's watch.
            # mutant: metadata-store/a-late-attempt-replaces-the-watch
            if current and current.owner.is_newer_than(attempt):
                raise Superseded(f"{attempt} was superseded by {current.owner}; a late attempt stops")
            if current:
                current.close()
            return self._add(attempt)

    def forget(self, run_id: str) -> None:
        """End the watch of a run; safe without one."""
        with self._lock:
            watch = self._open.pop(run_id, None)
        if watch is not None:
            watch.close()

    def close(self) -> None:
        """End all watches."""
        for run_id in list(self._open):
            self.forget(run_id)

    def _add(self, attempt: Attempt) -> SourceWatch:
        watch = self._open[attempt.run_id] = SourceWatch(attempt)
        return watch
