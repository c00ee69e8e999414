"""Nodes that are counters, and the modification count of their copies in Oxia."""

from __future__ import annotations

import pytest

from clients.store import Record
from clients.zookeeper import keeps_count, target_count


@pytest.mark.parametrize(
    ("path", "value", "keeps"),
    [
        (b"/ledgers/idgen", b"x", True),
        (b"/ledgers/idgen-long", b"x", True),
        (b"/ledgers/idgen-long/HOB-0000000001", b"x", True),
        (b"/ledgers/idgen-longer", b"x", False),
        (b"/counters/producer-name", b"x", True),
        (b"/counters/producer-name/-0000000001", b"x", False),
        (b"/counters", b"x", False),
        (b"/admin/policies/public", b"x", False),
        (b"/admin/policies/public", b"", True),
    ],
)
def test_keeps_count(path: bytes, value: bytes, keeps: bool) -> None:
    """Known counters and nodes without a value keep the number of children that they had."""
    assert keeps_count(path, value) is keeps


def test_target_count() -> None:
    """A counter carries the larger of version and count, everything else its version."""
    assert target_count(Record(b"/ledgers/idgen", b"", 2, 41, 0, 1, 1)) == 41
    assert target_count(Record(b"/counters/producer-name", b"", 7, 3, 0, 1, 1)) == 7
    assert target_count(Record(b"/admin/policies/public", b"{}", 2, 41, 0, 1, 1)) == 2
