"""From runs to a table and `bench/out/scalable_topic.json`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from bench.lifecycle.results import DELIVERY, SIDES, Results, Run, Side, figures_table


@dataclass(frozen=True)
class TopicFlip:
    """How long one topic took.

    Attributes:
        topic: which.
        call_seconds: of the brokers' own call.
        work_seconds: of the attempt that made this call, with all that it did next to it.
        flip_seconds: of the whole phase, from the workflow's side.
    """

    topic: str
    call_seconds: float
    work_seconds: float
    flip_seconds: float

    @property
    def overhead_seconds(self) -> float:
        """Duration of the phase without the brokers' own call."""
        return self.flip_seconds - self.call_seconds


@dataclass(frozen=True)
class TopicRun(Run):
    """One side.

    Attributes:
        flips: one for each topic, the canary of ours first.
    """

    flips: tuple[TopicFlip, ...] = ()


LABELS = {
    "acknowledged": DELIVERY["acknowledged"],
    "lost": DELIVERY["lost"],
    "lost_stays": "lost, shared, consumer there throughout",
    "lost_returns": "lost, shared, consumer away for seconds",
    "lost_waits": "lost, key-shared, read later",
    "lost_exclusive": "lost, exclusive",
    "lost_failover": "lost, failover",
    **{name: label for name, label in DELIVERY.items() if name not in ("acknowledged", "lost")},
    "absent_consumers": "consumers that could not come",
    "pruned": "regular parents dropped",
    "pruned_unread": "messages dropped unread with them",
    "merged": "topics with merged segments",
    "longest_send_seconds": "longest send (s)",
    "call_seconds": "brokers' own call, median (s)",
    "seconds": "all topics (s)",
}
"""What the table calls each figure."""


@dataclass
class TopicResults(Results[TopicRun]):
    """Both sides of one benchmark: the migration, and the brokers' command alone.

    Attributes:
        topics: how many each side made scalable.
    """

    topics: int = 0

    def of(self, side: Side) -> dict[str, float] | None:
        """Return the figures of one side; None if it was left out."""
        run = self.first_of(side)
        return run and {**run.figures, "call_seconds": statistics.median(flip.call_seconds for flip in run.flips)}

    @property
    def overhead_seconds(self) -> float | None:
        """Median overhead of our step for a topic, without the brokers' own call in it."""
        run = self.first_of(Side.OURS)
        return run and statistics.median(flip.overhead_seconds for flip in run.flips)

    @property
    def overhead_alone_seconds(self) -> float | None:
        """Overhead of the canary, during which no other topic becomes scalable."""
        run = self.first_of(Side.OURS)
        return run and run.flips[0].overhead_seconds

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/scalable_topic.json`."""
        return {
            "topics": self.topics,
            **{side.value: self.of(side) for side in SIDES},
            "overhead_seconds": self.overhead_seconds,
            "overhead_alone_seconds": self.overhead_alone_seconds,
            "detail": {
                "machine": self.machine,
                "runs": [
                    {"side": run.side.value, "faults": run.faults, "flips": [vars(flip) for flip in run.flips]}
                    for run in self.runs
                ],
            },
        }

    def table(self) -> str:
        """Return Markdown with both sides next to each other."""
        sides = {side: figures for side in SIDES if (figures := self.of(side))}
        head = [f"{self.topics} topics", *(side.value for side in sides)]
        lines = [figures_table(head, LABELS, [*sides.values()])]
        if self.overhead_seconds is not None:
            lines.append(
                f"\nBeyond the brokers' own call, ours takes {self.overhead_seconds:.2f} s for a topic (median), and "
                f"{self.overhead_alone_seconds:.2f} s for one by itself."
            )
        return "\n".join(lines)
