"""Parts of a comparison: sets of buckets, and sets of paths."""

from __future__ import annotations

from spark.metadata_store.spec import Buckets, bucket
from spark.metadata_store.tasks import PathSet

PATHS = [b"/ledgers/00/%04d/L%04d" % divmod(number, 10_000) for number in range(20_000)]


def test_chosen_buckets_hold_their_paths_and_no_others() -> None:
    """A path is held exactly if its bucket was chosen."""
    chosen = {0, 7, 8, 511, 1023}
    buckets = Buckets.of(1024, chosen)
    assert {bucket(path, 1024) for path in PATHS if buckets.hold(path)} == chosen
    assert all(buckets.hold(path) == (bucket(path, 1024) in chosen) for path in PATHS)


def test_buckets_are_true_if_one_is_chosen() -> None:
    """A set of buckets is false if none is chosen, and true with the last one."""
    assert not Buckets.of(64, ())
    assert Buckets.of(64, (63,))


def test_a_set_of_paths_returns_its_paths() -> None:
    """A set contains every path that was added, and no other."""
    paths = PathSet(iter(PATHS[::2]))
    assert all(path in paths for path in PATHS[::2])
    assert not any(path in paths for path in PATHS[1::2])
    assert b"" not in PathSet(())
