"""Paths of ledgers' metadata beneath the ledgers root."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.bookkeeper.idgen import high_path
from clients.bookkeeper.layout import ledger_id, ledger_path, ledger_subtrees

ids = st.integers(0, (1 << 63) - 1)


@pytest.mark.parametrize(
    ("number", "path"),
    [
        (0, "/00/0000/L0000"),
        (2, "/00/0000/L0002"),
        (1_234_567_890, "/12/3456/L7890"),
        ((1 << 31) - 1, "/21/4748/L3647"),
        (1 << 31, "/000/0000/0021/4748/L3648"),
        (4_294_967_296, "/000/0000/0042/9496/L7296"),
        ((1 << 63) - 1, "/922/3372/0368/5477/L5807"),
    ],
)
def test_paths(number: int, path: str) -> None:
    """Ids from 2^31 on have the long form, those below the short one."""
    assert ledger_path(number) == path


@given(ids, st.booleans())
def test_round_trip(number: int, always_long: bool) -> None:
    """Each id is found again in its path, in both layouts."""
    path = ledger_path(number, always_long=always_long)
    assert ledger_id(path) == number
    assert path.count("/") == (5 if always_long or number >= 1 << 31 else 3)
    assert ledger_subtrees([path[: path.index("/", 1)]])


@given(ids, ids)
def test_paths_differ(first: int, second: int) -> None:
    """No two ids share a path."""
    assert (ledger_path(first) == ledger_path(second)) == (first == second)


@pytest.mark.parametrize("number", [-1, 1 << 63])
def test_ids_out_of_range(number: int) -> None:
    """A number outside the range of ledger ids has no path."""
    with pytest.raises(ValueError, match="invalid ledger id"):
        ledger_path(number)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/00",
        "/00/0000",
        "/00/0000/0001",
        "/00/0000/L00010",
        "/L0000000001",
        "/idgen/ID-0000000001",
        "/000/0000/L0001",
    ],
)
def test_other_nodes(path: str) -> None:
    """Nodes other than a ledger's metadata have no id."""
    assert ledger_id(path) is None


def test_subtrees() -> None:
    """BookKeeper's own nodes are left out of a scan for ledgers."""
    own = ["/LAYOUT", "/INSTANCEID", "/available", "/cookies", "/idgen", "/idgen-long", "/underreplication"]
    assert ledger_subtrees(["/00", *own, "/21", "/000", "/0042"]) == ["/00", "/21", "/000"]


def test_upper_half() -> None:
    """An upper half is named as both generators read it, and never 0, which would give ids from 0 again."""
    assert high_path(1) == "/idgen-long/HOB-0000000001"
    assert high_path(0x7FFF_FFFF) == "/idgen-long/HOB-2147483647"
    for refused in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="not an upper half"):
            high_path(refused)
