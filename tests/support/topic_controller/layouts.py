"""Layouts of tests."""

from __future__ import annotations

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo


def widest(layout: SegmentLayout) -> SegmentInfo:
    """The active segment with most hashes."""
    return max(layout.active, key=lambda one: one.hash_range.end - one.hash_range.start)
