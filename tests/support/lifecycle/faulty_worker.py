"""The real worker, whose steps can be held at their boundaries (see `tests.support.lifecycle.gates`).

`python -m … --ready-file FILE`, with the folder of the gates in FAULTY_WORKER_GATES.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import temporalio.client
import temporalio.worker
from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import Runtime

from models.settings import Settings
from pulsar_devstack.servers import processes
from tests.support.lifecycle.gates import FOLDER_VARIABLE, Edge, Gate, Gates
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.topic_controller.held_changes import STEP, Step, hold_changes
from tests.support.waiting import wait_for
from worker import process
from worker.catalog import ALL

_PREFIXES = tuple(f"{kind.package}_" for kind in ALL.values())
_POLL = 0.02
_HEARTBEAT_EVERY = 1.0
_DUMP_LIMIT = 3.0


class FaultyWorkerProcess(WorkerProcess):
    """A worker whose steps can be held, and that can be frozen with all that it started."""

    def __init__(self, temporal_address: str, folder: Path, gates: Gates) -> None:
        super().__init__(temporal_address, folder)
        self._environment[FOLDER_VARIABLE] = str(gates.folder)

    def launch(self) -> None:
        """Start the process and return at once."""
        self._ready_file.unlink(missing_ok=True)
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        program = [sys.executable, "-m", "tests.support.lifecycle.faulty_worker", "--ready-file", str(self._ready_file)]
        self._child = processes.spawn(["/usr/bin/env", *variables, *program], cwd=self._cwd, log=self.log, detach=False)
        self._sessions.append(self._child.pid)

    def story(self, headline: str) -> str:
        """Return a headline with the end of the log, and what each thread does now, if the worker lives."""
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, signal.SIGUSR1)
            with suppress(AssertionError):
                wait_for(
                    "the stacks", lambda: "Current thread" in super(FaultyWorkerProcess, self).story(""), _DUMP_LIMIT
                )
        return super().story(headline)

    def freeze(self) -> None:
        """Freeze worker and executors, as a machine that hangs."""
        for pid in self._survivors():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the frozen processes."""
        for pid in self._survivors():
            os.kill(pid, signal.SIGCONT)


class _Holding(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """An interceptor of the client counts for its workers as well."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def intercept_activity(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,  # noqa: A002 - the SDK's own name
    ) -> temporalio.worker.ActivityInboundInterceptor:
        return _HeldActivity(next, self._gates)


class _HeldActivity(temporalio.worker.ActivityInboundInterceptor):
    def __init__(self, onward: temporalio.worker.ActivityInboundInterceptor, gates: Gates) -> None:
        super().__init__(onward)
        self._gates = gates

    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        name = activity.info().activity_type
        step = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
        before, after = Gate(step, Edge.BEFORE), Gate(step, Edge.AFTER)
        held: list[Gate] = []
        STEP.set(Step(step, held))
        try:
            await self._hold(before, held)
            result = await super().execute_activity(input)
            await self._hold(after, held)
            return result
        finally:
            for gate in held:
                self._gates.end(gate)

    async def _hold(self, gate: Gate, held: list[Gate]) -> None:
        manner = self._gates.take(gate)
        if manner is None:
            return
        held.append(gate)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self._gates.released(gate):
            if manner == "heartbeats" and loop.time() >= due:
                activity.heartbeat(f"held at {gate}")
                due = loop.time() + _HEARTBEAT_EVERY
            await asyncio.sleep(_POLL)


def main() -> None:
    """Run the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    gates = Gates(Path(os.environ[FOLDER_VARIABLE]))
    connect = process.connect

    async def connect_with_gates(runtime: Runtime | None = None, *, traced_as: str = "") -> Client:
        config = (await connect(runtime, traced_as=traced_as)).config()
        config["interceptors"] = [*config["interceptors"], _Holding(gates)]
        return Client(**config)

    process.connect = connect_with_gates
    hold_changes(gates)
    faulthandler.register(signal.SIGUSR1)
    process.run_worker(Settings(), ready_file=options.ready_file)


if __name__ == "__main__":
    main()
