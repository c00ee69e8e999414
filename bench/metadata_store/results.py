"""From the figures of single runs to medians, ratios, a table and `bench/out/metadata.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.lifecycle.results import Results, Run, Side, Spread, markdown


@dataclass(frozen=True)
class SizedRun(Run):
    """One run on fresh servers.

    Attributes:
        mb: size of the dataset, in 10^6 bytes of values.
    """

    mb: int = 0


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure of ours and the peer's figure to compare with."""

    label: str
    ours: tuple[Side, str]
    peer: str | None = None
    scale: float = 1.0


LINES = (
    Line("metadata writes blocked (s)", (Side.OURS, "blocked_seconds"), "blocked_seconds"),
    Line("longest pause a writer felt (s)", (Side.OURS, "write_pause_seconds"), "write_pause_seconds"),
    Line("copy of everything (s)", (Side.JOBS, "copy_seconds"), "copy_seconds"),
    Line("compare of everything (s)", (Side.JOBS, "compare_seconds")),
    Line("copy, client's processor time (s)", (Side.JOBS, "copy_client_cpu_seconds"), "copy_client_cpu_seconds"),
    Line(
        "copy, ZooKeeper's processor time (s)", (Side.JOBS, "copy_zookeeper_cpu_seconds"), "copy_zookeeper_cpu_seconds"
    ),
    Line("copy, Oxia's processor time (s)", (Side.JOBS, "copy_oxia_cpu_seconds"), "copy_oxia_cpu_seconds"),
    Line("start to COMPLETED (s)", (Side.OURS, "total_seconds"), "total_seconds"),
    Line("peak memory (MB)", (Side.OURS, "peak_rss_bytes"), "peak_rss_bytes", scale=1e-6),
)


@dataclass
class SizedResults(Results[SizedRun]):
    """Runs of one benchmark.

    Attributes:
        datasets: for each size in MB its number of records and bytes of values.
    """

    datasets: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])

    def spread(self, side: Side, mb: int, figure: str) -> Spread | None:
        """Return median and range of one figure; None if no run has it."""
        return Spread.of(run.figures[figure] for run in self.of_side(side) if run.mb == mb and figure in run.figures)

    def median(self, side: Side, mb: int, figure: str) -> float | None:
        """Return the median of a figure; None if no run has it."""
        spread = self.spread(side, mb, figure)
        return spread.median if spread else None

    def table(self) -> str:
        """Return Markdown: medians and ranges for each size, and how both sides grow with it."""
        parts = [self._size_table(mb) for mb in sorted(self.datasets)]
        if len(self.datasets) > 1:
            parts.append(self._growth())
        return "\n\n".join(parts)

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/metadata.json`: the largest size at the top, everything under `detail`."""
        main = max(self.datasets)
        return {
            "blocked_seconds": {
                "ours": self.median(Side.OURS, main, "blocked_seconds"),
                "peer": self.median(Side.PEER, main, "blocked_seconds"),
            },
            "copy_seconds": {
                "ours": self.median(Side.JOBS, main, "copy_seconds"),
                "peer": self.median(Side.PEER, main, "copy_seconds"),
            },
            "compare_seconds": self.median(Side.JOBS, main, "compare_seconds"),
            "peak_rss_bytes": self.median(Side.OURS, main, "peak_rss_bytes"),
            "detail": {
                "machine": self.machine,
                "datasets": {str(mb): held for mb, held in self.datasets.items()},
                "medians": {
                    str(mb): {
                        side.value: {
                            name: self.median(side, mb, name)
                            for name in sorted({name for run in self.runs if run.side is side for name in run.figures})
                        }
                        for side in Side
                    }
                    for mb in sorted(self.datasets)
                },
                "runs": [{"side": run.side.value, "mb": run.mb, "figures": run.figures} for run in self.runs],
            },
        }

    def _size_table(self, mb: int) -> str:
        held = self.datasets[mb]
        rows: list[list[str]] = []
        for line in LINES:
            ours = self.spread(line.ours[0], mb, line.ours[1])
            peer = self.spread(Side.PEER, mb, line.peer) if line.peer else None
            shown = [spread.shown(scale=line.scale) if spread else "–" for spread in (ours, peer)]
            rows.append([line.label, *shown, ratio(ours, peer)])
        title = f"### {mb} MB: {held['records']:,} records, {held['value_bytes']:,} bytes of values"
        return f"{title}\n\n{markdown(['median (range)', 'ours', 'peer', 'peer / ours'], rows)}"

    def _growth(self) -> str:
        least, most = min(self.datasets), max(self.datasets)
        data = self.datasets[most]["records"] / self.datasets[least]["records"]
        grown = [
            f"{label} {larger / smaller:.1f}×"
            for label, side, figure in (
                ("our copy", Side.JOBS, "copy_seconds"),
                ("our blocked time", Side.OURS, "blocked_seconds"),
                ("the peer's copy", Side.PEER, "copy_seconds"),
                ("the peer's blocked time", Side.PEER, "blocked_seconds"),
            )
            if (smaller := self.median(side, least, figure)) and (larger := self.median(side, most, figure))
        ]
        return f"From {least} to {most} MB ({data:.1f}× the records): {', '.join(grown) or 'nothing to compare'}."


def ratio(ours: Spread | None, peer: Spread | None) -> str:
    """Return the peer's median divided by ours, as text; a dash if one is missing or zero."""
    if ours is None or peer is None or not ours.median:
        return "–"
    return f"{peer.median / ours.median:.2f}×"
