"""Records that Oxia's bulk writer refuses before it connects."""

from __future__ import annotations

import re

import pytest

from clients.errors import RecordNotWritable
from clients.oxia import OxiaWriter
from clients.store import Record
from models.store_url import parse_store_url


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (Record(b"/a", b"", 0, 0, 0x1001, 0, 0), "/a is ephemeral (session 0x1001)"),
        (Record(b"/a", b"", -1, 0, 0, 0, 0), "/a has version -1"),
        (Record(b"/a/\xff", b"", 0, 0, 0, 0, 0), "/a/\\xff is not UTF-8"),
    ],
)
def test_records_that_oxia_cannot_hold_are_refused(record: Record, cause: str) -> None:
    """An ephemeral record, the version that means absence, and a path that is not text are named and not sent."""
    writer = OxiaWriter(parse_store_url("oxia://127.0.0.1:1"))
    with pytest.raises(RecordNotWritable, match=re.escape(cause)):
        writer.put(record, over=None)
    writer.close()
    writer.close()
