"""Layouts of tests."""

from __future__ import annotations

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo


def widest(layout: SegmentLayout) -> SegmentInfo:
    """Return the active segment with most hashes."""
    return max(layout.active, key=lambda segment: segment.hash_range.end - segment.hash_range.start)
