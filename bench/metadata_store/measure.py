"""One run of each side: what is started, and what is measured."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kazoo.client import KazooClient

from bench.lifecycle.machine import importable
from bench.lifecycle.measure import execute, reported, serving_worker
from bench.lifecycle.processes import Meter
from bench.lifecycle.results import Side
from bench.metadata_store.baseline import Peer
from bench.metadata_store.dataset import Dataset
from bench.metadata_store.servers import Stores
from models.lifecycle.status import PhaseEntry
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from models.migration_flag import FLAG, FlagPhase
from pulsar_devstack.servers.child_programs import Child

_START_SECONDS = 180.0
_END_SECONDS = 60.0
_RUN_SECONDS = 1_800.0


_TIMEOUT = 10


@dataclass(frozen=True)
class Bench:
    """Shared settings of all runs.

    Attributes:
        peer: Pulsar's classes.
        temporal: `host:port` of the dev server.
    """

    peer: Peer
    temporal: str

    def measure(self, side: Side, name: str, dataset: Dataset, stores: Stores, logs: Path) -> dict[str, float]:
        """Return the figures of one run.

        Args:
            side: who migrates.
            name: of the run; letters, digits and `-`.
            dataset: what the source holds.
            stores: both stores, fresh.
            logs: a folder for the logs of this run.
        """
        if side is Side.PEER:
            return self._measure_peer(stores, logs)
        if side is Side.JOBS:
            return _measure_jobs(dataset, stores, logs)
        return self._measure_workflow(name, stores, logs)

    def _measure_peer(self, stores: Stores, logs: Path) -> dict[str, float]:
        with (
            Child(self.peer.participant(stores.source), logs / "participant.log") as participant,
            Child(self.peer.coordinator(stores.source, stores.target), logs / "coordinator.log") as coordinator,
            FlagWatch(stores.zookeeper_address) as flag,
        ):
            for child in (participant, coordinator):
                child.await_line("READY", _START_SECONDS)
            with Meter({"client": coordinator.pid, **stores.pids}) as meter:
                coordinator.order("go")
                own = coordinator.figures(_RUN_SECONDS)
            flag.await_completed(_END_SECONDS)
            copying = flag.seconds(FlagPhase.COPYING, FlagPhase.COMPLETED)
            figures = _blocked(flag, participant)
        figures["total_seconds"] = own["seconds"]
        # Only its copying, without its wait for participants: a fairer comparison with our copy.
        figures["copy_seconds"] = own["seconds"] if copying is None else copying
        figures["peak_rss_bytes"] = meter.peak_rss_bytes["client"]
        return figures | _cpu("copy", meter)

    def _measure_workflow(self, name: str, stores: Stores, logs: Path) -> dict[str, float]:
        input = plan(name, stores.source, stores.target)
        with (
            Child(self.peer.participant(stores.source), logs / "participant.log") as participant,
            serving_worker(self.temporal, logs) as worker,
            FlagWatch(stores.zookeeper_address) as flag,
        ):
            participant.await_line("READY", _START_SECONDS)
            with Meter({"client": worker.pid, **stores.pids}) as meter:
                report = execute(self.temporal, "MetadataStoreMigration", input)
            flag.await_completed(_END_SECONDS)
            figures = _blocked(flag, participant)
        figures["total_seconds"] = _total_seconds(report.history)
        figures["peak_rss_bytes"] = meter.peak_rss_bytes["client"]
        return figures | _cpu("total", meter) | reported(report)


def plan(name: str, source: str, target: str) -> MetadataStoreInput:
    """Return the plan of what is measured."""
    return MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": name,
            "source": source,
            "target": target,
            "validation_window": "PT0S",
            # The cluster has no brokers; the one participant is not a broker.
            "allow_no_brokers": True,
            # Where the participant writes.
            "accept": ["path:/bench"],
        }
    )


def _measure_jobs(dataset: Dataset, stores: Stores, logs: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.metadata_store.subject", stores.source, stores.target, str(dataset.records)]
    figures: dict[str, float] = {}
    with Child(command, logs / "jobs.log", importable()) as ours:
        ours.await_line("READY", _START_SECONDS)
        for job in ("copy", "compare"):
            with Meter({"client": ours.pid, **stores.pids}) as meter:
                ours.order(job)
                done = ours.figures(_RUN_SECONDS)
            figures[f"{job}_seconds"] = done["seconds"]
            figures[f"{job}_peak_rss_bytes"] = meter.peak_rss_bytes["client"]
            figures |= _cpu(job, meter)
        ours.end_of_orders()
    return figures


def _blocked(flag: FlagWatch, participant: Child) -> dict[str, float]:
    """Return the time with writes blocked, by the flag and by the participant's writes."""
    participant.end_of_orders()
    felt = participant.figures(_END_SECONDS)
    blocked = flag.seconds(FlagPhase.PREPARATION, FlagPhase.COMPLETED)
    assert blocked is not None, "both ends were awaited"
    return {"blocked_seconds": blocked, "write_pause_seconds": felt["longest_gap_seconds"]}


def _cpu(what: str, meter: Meter) -> dict[str, float]:
    return {f"{what}_{name}_cpu_seconds": seconds for name, seconds in meter.cpu_seconds.items()}


def _total_seconds(history: list[PhaseEntry]) -> float:
    ended = next(entry.ended for entry in history if entry.phase == Phase.COMPLETED)
    assert ended is not None, "the migration is done"
    return (ended - history[0].started).total_seconds()


class _Times(Protocol):
    ctime: int
    mtime: int


class FlagError(Exception):
    """The flag did not take the expected states."""


class FlagWatch:
    """Notes when the flag of a ZooKeeper entered its phases, by the server's clock (milliseconds, in the node's times).

    The flag must not exist before: its creation is the start of PREPARATION, from which on brokers refuse to write.
    """

    def __init__(self, address: str) -> None:
        """Connect to `address`, `host:port`."""
        self._client = KazooClient(hosts=address, timeout=_TIMEOUT)
        self._changed = threading.Condition()
        self._entered: dict[FlagPhase, int] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_TIMEOUT)
        self._client.DataWatch(FLAG, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()

    def await_completed(self, seconds: float) -> None:
        """Wait for COMPLETED.

        Raises:
            FlagError: FAILED came instead, or nothing in `seconds`.
        """
        ends = (FlagPhase.COMPLETED, FlagPhase.FAILED)
        with self._changed:
            self._changed.wait_for(lambda: any(end in self._entered for end in ends), seconds)
            if FlagPhase.COMPLETED not in self._entered:
                raise FlagError(f"the migration flag is not COMPLETED but went through {', '.join(self._entered)}")

    def seconds(self, since: FlagPhase, until: FlagPhase) -> float | None:
        """Time between the entries of two phases; None if one was too short to be seen."""
        with self._changed:
            if since not in self._entered or until not in self._entered:
                return None
            return (self._entered[until] - self._entered[since]) / 1_000

    def _note(self, data: bytes | None, stat: _Times | None) -> None:
        if data is None or stat is None:
            return
        with self._changed:
            self._entered.setdefault(FlagPhase.PREPARATION, stat.ctime)
            self._entered.setdefault(FlagPhase(json.loads(data)["phase"]), stat.mtime)
            self._changed.notify_all()
