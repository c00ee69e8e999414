"""Changes of a source that a process knows, also where two attempts share them.

The feed is a double: which changes arrive between two looks cannot be chosen with a real server. The real one is under
test in tests/integration/clients and in the migrations of tests/integration/metadata_store.
"""

from __future__ import annotations

from typing import cast

import pytest

from activities.metadata_store.source_watch import DirtyPaths, SourceWatch, Watches
from clients.errors import StoreUnreachable, Superseded
from clients.zookeeper.watch import ChangeFeed
from models.lifecycle.claim import CLAIM, Attempt

FIRST, SECOND = Attempt("m", "r", 1, 1, 1), Attempt("m", "r", 1, 1, 2)


class Feed:
    """Tells what the test puts in."""

    def __init__(self) -> None:
        self.gap: str | None = None
        self.changed: set[bytes] = set()

    def start(self) -> int:
        """Begin to report changes."""
        return 7

    def drain(self, timeout: float) -> set[bytes]:
        """Return the changes that were reported since the last call."""
        assert timeout > 0
        if self.gap:
            raise StoreUnreachable(self.gap)
        changed, self.changed = self.changed, set()
        return changed

    def close(self) -> None:
        """Close the feed; nothing to do here."""
        self.gap = self.gap or "closed"


def restart(watch: SourceWatch, missed: str = "") -> Feed:
    """Give a watch a new feed."""
    feed = Feed()
    assert watch.restart(cast("ChangeFeed", feed), missed) == 7
    return feed


def test_a_new_watch_has_a_gap_until_a_scan_fills_it() -> None:
    """A path that a scan finds is dirty, and later changes are added to it."""
    watch = SourceWatch(FIRST)
    assert watch.gap()
    feed = restart(watch, watch.gap())
    assert watch.gap()
    watch.fill(cast("ChangeFeed", feed), [b"/a", CLAIM.encode()])
    assert not watch.gap()
    feed.changed = {b"/b"}
    assert watch.collect(1).paths == {b"/a", b"/b"}


def test_a_scan_fills_no_gap_of_another_feed() -> None:
    """Two attempts find a gap: the first one's scan does not cover what changed before the second one's feed began."""
    watch = SourceWatch(FIRST)
    first = restart(watch, "lost")
    second = restart(watch, "lost")
    assert first.gap == "closed"
    watch.fill(cast("ChangeFeed", first), [b"/a"])
    assert watch.gap() == "lost"
    watch.fill(cast("ChangeFeed", second), [b"/b"])
    assert not watch.gap()
    assert watch.collect(1).paths == {b"/a", b"/b"}


def test_a_feed_that_does_not_start_leaves_a_gap() -> None:
    """The next attempt finds the gap and takes another feed; the one that failed is not asked for changes."""

    class Dead(Feed):
        def start(self) -> int:
            raise StoreUnreachable("an election")

    watch = SourceWatch(FIRST)
    restart(watch).changed = {b"/a"}
    assert watch.collect(1).paths == {b"/a"}
    for missed in ("", "lost"):
        with pytest.raises(StoreUnreachable, match="an election"):
            watch.restart(cast("ChangeFeed", Dead()), missed)
        assert watch.gap()
        assert watch.collect(1).paths == {b"/a"}
    feed = restart(watch, watch.gap())
    watch.fill(cast("ChangeFeed", feed), [b"/b"])
    assert not watch.gap()
    assert watch.collect(1).paths == {b"/a", b"/b"}


def test_a_late_comparison_keeps_newer_changes() -> None:
    """An attempt that froze after its comparison continues after the next one has collected the path again."""
    watch = SourceWatch(FIRST)
    feed = restart(watch)
    feed.changed = {b"/a", b"/b"}
    late = watch.collect(1)
    feed.changed = {b"/a"}
    newer = watch.collect(1)
    watch.mark_clean(late.paths, late.mark)
    assert watch.collect(1).paths == {b"/a"}
    assert watch.changed_after(late.mark) == {b"/a"}
    assert watch.changed_after(newer.mark) == frozenset()
    watch.mark_clean({b"/a", b"/never reported"}, newer.mark)
    assert watch.collect(1).paths == frozenset()


def test_a_gap_that_opens_during_a_collection_is_seen() -> None:
    """Nothing is returned then, and the caller gets the gap."""
    watch = SourceWatch(FIRST)
    feed = restart(watch)
    feed.changed = {b"/a"}
    assert watch.collect(1) == DirtyPaths(frozenset({b"/a"}), 1)
    feed.gap = "the server went away"
    assert watch.collect(1).paths == {b"/a"}
    assert watch.gap() == "the server went away"


def test_a_late_attempt_does_not_replace_a_newer_watch() -> None:
    """The older watch would seem complete, although it lacks what the newer one collected."""
    watches = Watches()
    watch = watches.renew(SECOND)
    feed = restart(watch)
    with pytest.raises(Superseded, match="attempt 1 was superseded by"):
        watches.renew(FIRST)
    assert watches.of(FIRST) is watch
    assert feed.gap is None
    newest = watches.renew(SECOND._replace(epoch=2))
    assert newest is not watch
    assert feed.gap == "closed"
    watches.forget("r")
    assert watches.of(SECOND) is not newest
