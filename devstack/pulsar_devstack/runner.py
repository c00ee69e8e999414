"""How a server runs: as a process of this machine here, as a container in `containers`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Protocol

from pulsar_devstack import supervise
from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers import ServerPlan
from pulsar_devstack.supervise import ProcessId, ProcessRecord

_KILL_LIMIT = 10.0
_PAUSE_LIMIT = 5.0


class Runner(Protocol):
    """One server's process, whoever started it."""

    @property
    def pid(self) -> int | None:
        """Its process number while it runs or is paused."""
        ...

    @property
    def paused(self) -> bool:
        """Whether it is frozen."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How what this object started has ended, negative for a signal; None while it runs."""
        ...

    def start(self, plan: ServerPlan) -> None:
        """Start it; returns at once."""
        ...

    def stop(self, limit: float) -> bool:
        """Ask it to end; False when it still runs after `limit` seconds."""
        ...

    def kill(self) -> None:
        """End it as a crash would, and wait until it has gone."""
        ...

    def pause(self) -> None:
        """Freeze it."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


class ProcessRunner:
    """A server as a process; with `detach` it outlives ours."""

    def __init__(self, name: str, folder: Path, log: Path, *, detach: bool) -> None:
        self._name, self._folder, self._log, self._detach = name, folder, log, detach
        self._record = ProcessRecord(folder / "process.json")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process number while it runs or is paused."""
        process = self._record.read()
        return process.pid if process and process.alive else None

    @property
    def paused(self) -> bool:
        """Whether it is frozen."""
        process = self._record.read()
        return process is not None and process.paused

    @property
    def exit_code(self) -> int | None:
        """How what this object started has ended, negative for a signal; None while it runs."""
        return self._child.poll() if self._child else None

    def start(self, plan: ServerPlan) -> None:
        """Start it; returns at once."""
        child = supervise.spawn(plan.command, cwd=self._folder, log=self._log, detach=self._detach)
        self._child = child
        if found := supervise.inspect(child.pid):
            self._record.write(ProcessId(pid=child.pid, started=found[1]))

    def stop(self, limit: float) -> bool:
        """Ask it to end; False when it still runs after `limit` seconds."""
        process = self._record.read()
        if process is None:
            return True
        # A frozen process gets no other signal before it goes on.
        process.send(signal.SIGCONT)
        process.send(signal.SIGTERM)
        return supervise.wait_gone(process, self._child_of(process), limit)

    def kill(self) -> None:
        """End it as a crash would, and wait until it has gone."""
        process = self._record.read()
        if process is None:
            return
        process.send(signal.SIGKILL)
        if not supervise.wait_gone(process, self._child_of(process), _KILL_LIMIT):
            raise ServerFailed(self._name, f"(pid {process.pid}) survived SIGKILL", None, supervise.tail(self._log, 30))

    def pause(self) -> None:
        """Freeze it; returns when its threads have stopped."""
        process = self._record.read()
        if process and process.alive:
            process.send(signal.SIGSTOP)
            supervise.wait_paused(process, _PAUSE_LIMIT)

    def resume(self) -> None:
        """Let it go on."""
        if process := self._record.read():
            process.send(signal.SIGCONT)

    def _child_of(self, process: ProcessId) -> subprocess.Popen[bytes] | None:
        return self._child if self._child and self._child.pid == process.pid else None
