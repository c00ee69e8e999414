"""Layouts as they come to be, and the broker's own code that does the same (`java/SegmentLayouts.java`)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from models.segments.layout import SegmentLayout
from pulsar_devstack.servers.java_programs import JavaTool
from pulsar_devstack.servers.toolchain import Toolchain


class Step(NamedTuple):
    """A change of a layout.

    Attributes:
        what: is done.
        ids: of the segments.
        now_ms: milliseconds since 1970.
        buckets: rebucket: entry buckets of the new segment.
    """

    what: Literal["split", "merge", "rebucket", "prune"]
    ids: tuple[int, ...]
    now_ms: int
    buckets: int = 0

    def after(self, layout: SegmentLayout) -> SegmentLayout:
        """Return the layout with this change."""
        first, *others = self.ids
        if self.what == "split":
            return layout.split(first, self.now_ms)
        if self.what == "merge":
            return layout.merge(first, *others, now_ms=self.now_ms)
        if self.what == "rebucket":
            return layout.rebucket(first, self.buckets, self.now_ms)
        return layout.prune(first)


def random_steps(layout: SegmentLayout, chooser: random.Random, count: int) -> Iterator[tuple[Step, SegmentLayout]]:
    """Changes that are possible, each with the layout after it."""
    for now in range(1000, 1000 + count):
        step = chooser.choice(_possible(layout, now, chooser.randint(1, 9)))
        layout = step.after(layout)
        yield step, layout


def _possible(layout: SegmentLayout, now: int, buckets: int) -> list[Step]:
    active = layout.active
    pairs = pairwise(one.segment_id for one in active)
    return [
        *(Step("split", (one.segment_id,), now) for one in active if one.hash_range.size > 1),
        # Neighbours are merged in either order.
        *(Step("merge", ids, now) for pair in pairs for ids in (pair, pair[::-1])),
        *(Step("rebucket", (one.segment_id,), now, buckets) for one in active if one.buckets != buckets),
        *(Step("prune", (segment.segment_id,), now) for segment in layout.segments.values() if segment.sealed),
    ]


class JavaLayouts(JavaTool):
    """One Java machine with the broker's code. Every call may raise `Refused`.

    Args:
        tools: Java and the jars.
        folder: where its log goes.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        super().__init__(Path(__file__).parent / "java" / "SegmentLayouts.java", tools, folder)

    def change(self, value: bytes, steps: Sequence[Step]) -> list[bytes]:
        """Return what brokers store after each of the changes.

        Args:
            value: stored before.
            steps: in their order.
        """
        changed = self.ask("change", value=value.decode(), steps=[step._asdict() for step in steps])
        return [one.encode() for one in changed]

    def hashes(self, keys: Sequence[str]) -> list[int]:
        """Return what Pulsar's client computes of the keys of messages."""
        return list(self.ask("hash", keys=list(keys)))
