"""From runs to a table and `bench/out/controller.json`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.lifecycle.results import Results, Side, markdown


@dataclass(frozen=True)
class Change:
    """One split or merge.

    Attributes:
        name: `split` or `merge`.
        call_seconds: until the request was answered.
        message_seconds: until a consumer of all segments had the first message of a new one; None if it never came.
        ordered_seconds: the same for an ordered consumer, which reads new segments when old ones are consumed.
    """

    name: str
    call_seconds: float
    message_seconds: float | None
    ordered_seconds: float | None


@dataclass
class ControllerRun:
    """One side.

    Attributes:
        side: which.
        changes: in the order in which they were made.
        reassigned: seconds from a consumer's death to the first message of its segments at another one, without the
            grace period, each None where that never came.
        acknowledged: messages that brokers acknowledged to producers, in the part with changes.
        lost: of those, summed over subscriptions.
        order_violations: messages that first arrived after a later one of their key, at ordered consumers.
        duplicates: arrivals beyond the first.
        longest_send: seconds from sending to the acknowledgement.
        faults: what went wrong, in words.
    """

    side: Side
    changes: list[Change] = field(default_factory=list[Change])
    reassigned: list[float | None] = field(default_factory=list[float | None])
    acknowledged: int = 0
    lost: int = 0
    order_violations: int = 0
    duplicates: int = 0
    longest_send: float = 0.0
    faults: list[str] = field(default_factory=list[str])

    @property
    def split_seconds(self) -> float | None:
        """Median from the request for a split to the first message of a child."""
        return median([change.message_seconds for change in self.changes if change.name == "split"])

    @property
    def reassign_seconds(self) -> float | None:
        """Median of `reassigned`."""
        return median(self.reassigned)


class ControllerResults(Results[ControllerRun]):
    """Both sides: the workflow with Python clients, and a broker of Pulsar 5.0 with Java's V5 clients."""

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/controller.json`."""
        ours, peer = self.first_of(Side.OURS), self.first_of(Side.PEER)
        return {
            "operations": len(ours.changes) if ours else 0,
            "lost": ours.lost if ours else None,
            "order_violations": ours.order_violations if ours else None,
            "split_seconds": {"ours": ours and ours.split_seconds, "peer": peer and peer.split_seconds},
            "reassign_seconds": {"ours": ours and ours.reassign_seconds, "peer": peer and peer.reassign_seconds},
            "detail": {"machine": self.machine, "runs": [asdict(run) for run in self.runs]},
        }

    def table(self) -> str:
        """Return Markdown with both sides next to each other."""
        rows = ([label, *values] for label, values in self._rows().items())
        return markdown(["", *(run.side for run in self.runs)], rows)

    def _rows(self) -> dict[str, list[str]]:
        def seconds(name: str, change: str) -> list[str]:
            values_by_run = ([getattr(step, name) for step in run.changes if step.name == change] for run in self.runs)
            return [_shown(median(values_of_run)) for values_of_run in values_by_run]

        return {
            "splits and merges": [str(len(run.changes)) for run in self.runs],
            "messages acknowledged": [f"{run.acknowledged:,}" for run in self.runs],
            "lost": [str(run.lost) for run in self.runs],
            "out of order": [str(run.order_violations) for run in self.runs],
            "arrived again": [str(run.duplicates) for run in self.runs],
            "split, request to answer (s)": seconds("call_seconds", "split"),
            "split, request to first message of a child (s)": seconds("message_seconds", "split"),
            "split, the same at an ordered consumer (s)": seconds("ordered_seconds", "split"),
            "merge, request to first message of the child (s)": seconds("message_seconds", "merge"),
            "longest send (s)": [_shown(run.longest_send) for run in self.runs],
            "reassigned after a consumer's death, beyond the grace (s)": [
                _shown(run.reassign_seconds) for run in self.runs
            ],
        }


def median(values: Sequence[float | None]) -> float | None:
    """Return the median; None without values, or if one is missing."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present and len(present) == len(values) else None


def _shown(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"
