"""The copiers of one benchmark, side by side: each copies the same ledgers between the same bookies."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.bookie_cluster.results import Copier, Kind, Pass
from bench.bookie_cluster.servers import Clusters
from bench.bookie_cluster.subject import BENCH, CLAIM
from bench.lifecycle.machine import importable
from bench.lifecycle.processes import Meter
from clients.bookkeeper.ledgers import LedgerDirectoryWriter
from clients.stores import Access
from clients.zookeeper.coordination import Coordination
from models.bookie_registry import SwitchClaim
from models.ledger_store import parse_ledger_store_uri
from models.store_url import parse_store_url
from pulsar_devstack.servers.child_programs import Child
from pulsar_devstack.servers.java_programs import JavaProgram

_START_SECONDS = 180.0
_RUN_SECONDS = 1_800.0
PEER = Path(__file__).with_name("BookiePeer.java")
_PEER_OPTIONS = ("-Xmx1g",)
# The target's ids of the peers, apart from those of ours and of every other pass. Bookies may answer with an entry that
# another copier wrote to a ledger of the same id, deleted or not, and entries of BookKeeper's client carry another LAC.
_PEERS_IDS = {Copier.PEER_SINGLE: 1_000_000_000, Copier.PEER_BATCH: 1_500_000_000}
_IDS_OF_A_PASS = 1_000_000


class CopyBench:
    """Our copier and the peers, started and idle; they copy one after the other.

    Args:
        clusters: both, up and empty.
        kind: what is copied.
        logs: a folder for logs.
        cache: a folder for the compiled peer.
    """

    def __init__(self, clusters: Clusters, kind: Kind, logs: Path, cache: Path) -> None:
        self._clusters, self._kind, self._logs = clusters, kind, logs
        self._program = JavaProgram(PEER, clusters.tools, cache=cache)
        self._store = f"zk:{clusters.zookeeper_address}"
        self._children: dict[Copier, Child] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            with Coordination(parse_store_url(self._store)) as zookeeper:
                zookeeper.create(CLAIM, parents=True)
                zookeeper.set(CLAIM, SwitchClaim(**BENCH._asdict()).encode(), -1)
            arguments = [self._clusters.source, self._clusters.target, self._store]
            commands = {
                Copier.OURS: [sys.executable, "-m", "bench.bookie_cluster.subject", *arguments],
                Copier.PEER_SINGLE: self._peer("single"),
                Copier.PEER_BATCH: self._peer("batch"),
            }
            for copier, command in commands.items():
                log = self._logs / f"{copier.name.lower()}.log"
                self._children[copier] = self._stack.enter_context(Child(command, log, importable()))
            for child in self._children.values():
                child.await_line("READY", _START_SECONDS)
            self._target = LedgerDirectoryWriter(parse_ledger_store_uri(self._clusters.target).url, Access())
            self._stack.callback(self._target.close)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def generate(self) -> None:
        """Write the ledgers to the source, by a client of BookKeeper's that is not measured afterwards."""
        kind = self._kind
        with Child(self._peer("single"), self._logs / "generator.log") as generator:
            generator.await_line("READY", _START_SECONDS)
            generator.order(f"generate 1 {kind.ledgers * kind.copies} {kind.entries} {kind.size}")
            generator.figures(_RUN_SECONDS)

    def copy_in_turn(self, number: int, *, compare: bool) -> list[Pass]:
        """Run each copier on one set of the ledgers; the first one changes from pass to pass.

        Args:
            number: of the pass, from 1 on.
            compare: also compare what ours has copied.
        """
        copiers = list(Copier)
        shift = number % len(copiers)
        first = 1 + (number - 1) % self._kind.copies * self._kind.ledgers
        return [self._copy(copier, number, first, compare=compare) for copier in copiers[shift:] + copiers[:shift]]

    def copy_by_jobs(self, parallelism: int) -> float:
        """Copy all ledgers of the source by Spark jobs, and compare each; returns entries per second."""
        ledgers = self._kind.ledgers * self._kind.copies
        ours = self._children[Copier.OURS]
        ours.order(f"jobs {parallelism} 1 {ledgers}")
        figures = ours.figures(_RUN_SECONDS)
        self._delete(1, ledgers)
        return figures["entries"] / figures["seconds"]

    def _copy(self, copier: Copier, number: int, first: int, *, compare: bool) -> Pass:
        ours, ledgers = copier is Copier.OURS, self._kind.ledgers
        target = first if ours else _PEERS_IDS[copier] + number * _IDS_OF_A_PASS
        if ours:
            order = f"copy {first} {ledgers}"
        else:
            order = f"copy {first} {target}" if ledgers == 1 else f"copy-small {first} {ledgers} {target}"
        figures, cpu = self._order(copier, order)
        compared = None
        if ours and compare:
            differences, compare_cpu = self._order(copier, f"compare {first} {ledgers}")
            compared = differences["seconds"], compare_cpu["client"]
        # The next one must find the target as this one did: without these ledgers.
        self._delete(target, ledgers)
        return Pass(self._kind.name, copier, number, figures["seconds"], int(figures["entries"]), cpu, compared)

    def _order(self, copier: Copier, order: str) -> tuple[dict[str, float], dict[str, float]]:
        child = self._children[copier]
        with Meter({"client": child.pid, **self._clusters.pids}) as meter:
            child.order(order)
            figures = child.figures(_RUN_SECONDS)
        return figures, meter.cpu_seconds

    def _delete(self, first: int, ledgers: int) -> None:
        self._target.delete([(ledger_id, None) for ledger_id in range(first, first + ledgers)])

    def _peer(self, reads: str) -> list[str]:
        return self._program.command(self._clusters.source, self._clusters.target, reads, options=_PEER_OPTIONS)
