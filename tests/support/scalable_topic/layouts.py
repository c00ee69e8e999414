"""Random layouts, and the broker's own code that computes them (`java/SegmentLayouts.java`)."""

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
        what: kind of the change.
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
    """Yield random valid changes, each with the layout after it."""
    for now in range(1000, 1000 + count):
        step = chooser.choice(_possible(layout, now, chooser.randint(1, 9)))
        layout = step.after(layout)
        yield step, layout


def _possible(layout: SegmentLayout, now: int, buckets: int) -> list[Step]:
    active = layout.active
    pairs = pairwise(segment.segment_id for segment in active)
    return [
        *(Step("split", (segment.segment_id,), now) for segment in active if segment.hash_range.size > 1),
        # Neighbours are merged in either order.
        *(Step("merge", ids, now) for pair in pairs for ids in (pair, pair[::-1])),
        *(Step("rebucket", (segment.segment_id,), now, buckets) for segment in active if segment.buckets != buckets),
        *(Step("prune", (segment.segment_id,), now) for segment in layout.segments.values() if segment.sealed),
    ]


class JavaLayouts(JavaTool):
    """One Java machine with the broker's code. Every call may raise `Refused`.

    Args:
        tools: Java and the jars.
        folder: for its log.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        super().__init__(Path(__file__).parent / "java" / "SegmentLayouts.java", tools, folder)

    def change(self, value: bytes, steps: Sequence[Step]) -> list[bytes]:
        """Return the record that brokers store after each change.

        Args:
            value: the record before the changes.
            steps: the changes, in order.
        """
        changed = self.ask("change", value=value.decode(), steps=[step._asdict() for step in steps])
        return [layout.encode() for layout in changed]

    def hashes(self, keys: Sequence[str]) -> list[int]:
        """Return the hashes of message keys that Pulsar's client computes."""
        return list(self.ask("hash", keys=list(keys)))
