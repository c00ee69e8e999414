"""From the figures of single copies to ratios and tables, and to `bench/out/bookie.json` with its details."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bench.lifecycle.results import Spread, markdown


class Copier(StrEnum):
    """Copier: our process, or BookKeeper's Java client with single reads or with batch reads."""

    OURS = "ours"
    PEER_SINGLE = "peer, single reads"
    PEER_BATCH = "peer, batch reads"


PEERS = (Copier.PEER_SINGLE, Copier.PEER_BATCH)


@dataclass(frozen=True)
class Kind:
    """Ledgers of one kind.

    Attributes:
        name: in the results.
        ledgers: ledgers of one copy.
        copies: how many sets of them the source holds.
        entries: entries of each ledger.
        size: bytes of an entry's data; 0 for one to three entries of some hundred bytes.
    """

    name: str
    ledgers: int
    copies: int
    entries: int
    size: int


KINDS = (
    Kind("1KB", ledgers=1, copies=4, entries=40_000, size=1 << 10),
    Kind("64KB", ledgers=1, copies=4, entries=3_000, size=64 << 10),
    Kind("small_ledgers", ledgers=20_000, copies=1, entries=0, size=0),
)


@dataclass(frozen=True)
class Pass:
    """One copy of one set of ledgers.

    Attributes:
        number: 1 for the copier's first one; the first ones only warm up.
        seconds: of wall clock.
        entries: that were copied.
        cpu_seconds: processor time of the copier (`client`) and of each server.
        compare: ours only: seconds and processor seconds of reading both sides afterwards, and comparing them.
    """

    kind: str
    copier: Copier
    number: int
    seconds: float
    entries: int
    cpu_seconds: dict[str, float]
    compare: tuple[float, float] | None = None


@dataclass
class BookieResults:
    """Passes of one benchmark.

    Attributes:
        machine: what it ran on, and with which versions and options.
        warm_up: passes of each copier that do not count.
        passes: all of them.
        scaling: entries per second of the Spark jobs, which read back and compare too, by jobs at once.
        pause: figures of a whole switch; empty where it was not measured.
    """

    machine: dict[str, Any]
    warm_up: int
    passes: list[Pass] = field(default_factory=list[Pass])
    scaling: dict[int, float] = field(default_factory=dict[int, float])
    pause: dict[str, float] = field(default_factory=dict[str, float])

    def throughput(self, kind: Kind, copier: Copier) -> float:
        """Return the median of entries (for small ledgers: of ledgers) per second."""
        return statistics.median(
            self._counted(kind, measured_pass) / measured_pass.seconds for measured_pass in self._measured(kind, copier)
        )

    def cpu(self, kind: Kind, copier: Copier, process: str = "client") -> float:
        """Return the median of a pass's processor seconds; `servers` is the sum of all bookies and ZooKeeper."""
        return statistics.median(_cpu(measured_pass, process) for measured_pass in self._measured(kind, copier))

    def peer(self, kind: Kind) -> Copier:
        """Return the peer's faster copier."""
        return max(PEERS, key=lambda copier: self.throughput(kind, copier))

    def summary(self) -> dict[str, Any]:
        """Return the content of `bench/out/bookie.json`: ours to peer."""
        kinds = self._kinds()
        summary: dict[str, Any] = {
            "throughput_ratio": {
                kind.name: round(self.throughput(kind, Copier.OURS) / self.throughput(kind, self.peer(kind)), 3)
                for kind in kinds
            },
            "cpu_ratio": {
                kind.name: round(self.cpu(kind, Copier.OURS) / self.cpu(kind, self.peer(kind)), 3)
                for kind in kinds
                if kind.size
            },
        }
        return {**summary, "pause_seconds": self.pause["pause_seconds"]} if self.pause else summary

    def details(self) -> dict[str, Any]:
        """Return the content of `bench/out/bookie-details.json`: every single pass."""
        return {
            "machine": self.machine,
            "warm_up": self.warm_up,
            "peer": {kind.name: self.peer(kind).value for kind in self._kinds()},
            "scaling_entries_per_second": self.scaling,
            "passes": [vars(pass_) for pass_ in self.passes],
            "pause": self.pause,
        }

    def table(self) -> str:
        """Return a table in Markdown."""
        parts = [self._kind_table(kind) for kind in self._kinds()]
        if self.scaling:
            parts.append(self._scaling_table())
        if self.pause:
            parts.append(self._pause_line())
        return "\n\n".join(parts)

    def _pause_line(self) -> str:
        return (
            f"A whole switch: {self.pause['pause_seconds']:.2f} s between the broker's end and the commit, in which "
            f"{self.pause['tail_recovered_ledgers']:.0f} open ledgers were recovered and all compared; the broker was "
            f"away for {self.pause['brokers_away_seconds']:.2f} s in all."
        )

    def _kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if any(pass_.kind == kind.name for pass_ in self.passes)]

    def _measured(self, kind: Kind, copier: Copier) -> list[Pass]:
        return [
            pass_
            for pass_ in self.passes
            if (pass_.kind, pass_.copier) == (kind.name, copier) and pass_.number > self.warm_up
        ]

    @staticmethod
    def _counted(kind: Kind, measured_pass: Pass) -> int:
        return measured_pass.entries if kind.size else kind.ledgers

    def _kind_table(self, kind: Kind) -> str:
        what = (
            f"{kind.entries:,} entries of {kind.name}" if kind.size else f"{kind.ledgers:,} ledgers of 1 to 3 entries"
        )
        unit = "entries" if kind.size else "ledgers"
        rows: list[list[str]] = []
        for copier in Copier:
            mark = " (faster)" if copier is self.peer(kind) else ""
            measured = self._measured(kind, copier)
            rates = [self._counted(kind, measured_pass) / measured_pass.seconds for measured_pass in measured]
            megabytes = f"{statistics.median(rates) * kind.size / 1e6:,.1f}" if kind.size else "–"
            times = ([_cpu(measured_pass, process) for measured_pass in measured] for process in ("client", "servers"))
            shown = [_shown(rates, "{:,.0f}"), megabytes, *(_shown(seconds, "{:.2f}") for seconds in times)]
            rows.append([f"{copier.value}{mark}", *shown])
        title = f"### {what}; median (range) of the passes after the first {self.warm_up}"
        head = ["", f"{unit}/s", "MB/s", "client's processor time (s)", "servers' (s)"]
        lines = [title, "", markdown(head, rows)]
        compares = [
            measured_pass.compare for measured_pass in self._measured(kind, Copier.OURS) if measured_pass.compare
        ]
        if compares:
            seconds, cpu = (statistics.median(values) for values in zip(*compares, strict=True))
            lines += [
                "",
                f"Ours compares both sides in full in {seconds:.2f} s more, with {cpu:.2f} s of processor time.",
            ]
        ratios = self.summary()
        lines += ["", f"Ours to peer: throughput {ratios['throughput_ratio'][kind.name]:.2f}"]
        if kind.name in ratios["cpu_ratio"]:
            lines[-1] += f", processor time {ratios['cpu_ratio'][kind.name]:.2f}"
        return "\n".join([*lines[:-1], f"{lines[-1]}."])

    def _scaling_table(self) -> str:
        head = ["### Spark jobs at once, copying 1 KB entries, reading back and comparing", "", "| jobs | entries/s |"]
        return "\n".join([*head, "|---:|---:|", *(f"| {jobs} | {rate:,.0f} |" for jobs, rate in self.scaling.items())])


def _cpu(measured_pass: Pass, process: str) -> float:
    if process != "servers":
        return measured_pass.cpu_seconds[process]
    return sum(seconds for name, seconds in measured_pass.cpu_seconds.items() if name != "client")


def _shown(values: Iterable[float], form: str) -> str:
    spread = Spread.of(values)
    assert spread is not None, "there are passes"
    return spread.shown(form)
