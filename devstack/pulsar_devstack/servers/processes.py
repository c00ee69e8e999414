"""Start server processes so that none survives its parent, and find them again from another shell.

A server runs as a process of this machine (`ProcessRunner`), or as a container (`containers`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers.plans import ServerPlan

_KILL_LIMIT = 60.0
_PAUSE_LIMIT = 60.0
_CHILD = Path(__file__).parent / "child.py"
# The kernel kills a child when the *thread* that forked it ends, so one thread forks all and lives as long as we do.
_forker = ThreadPoolExecutor(1, thread_name_prefix="devstack-forker")


class ProcessId(BaseModel):
    """A process that cannot be mistaken for a later one with the same number.

    Attributes:
        pid: its number.
        started: when it started, in the kernel's own unit.
    """

    model_config = ConfigDict(frozen=True)

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        """True if this very process runs or is paused."""
        process = inspect(self.pid)
        return process is not None and process[1] == self.started

    @property
    def paused(self) -> bool:
        """True if it is stopped by a signal."""
        process = inspect(self.pid)
        return process is not None and process == ("T", self.started)

    def send(self, what: signal.Signals) -> None:
        """Signal the process and what it started; does nothing when it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, what)


def inspect(pid: int) -> tuple[str, str] | None:
    """Return state letter and start time of a process; None if it has ended."""
    state, started = _from_proc(pid) if sys.platform == "linux" else _from_ps(pid)
    return None if state in ("", "Z", "X") else (state, started)


def _from_proc(pid: int) -> tuple[str, str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    # The name in parentheses may hold anything, so count from its end; the start is field 22.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _from_ps(pid: int) -> tuple[str, str]:
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.split(maxsplit=1)
    return (answer[0][0], answer[1].strip()) if len(answer) == 2 else ("", "")


class ProcessRecord:
    """The file with the process id of a server, for this and other shells."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ProcessId | None:
        """Return the recorded process, running or not."""
        try:
            return ProcessId.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def write(self, process: ProcessId) -> None:
        """Replace the record at once, so that no reader sees half of it."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(process.model_dump_json())
        fresh.replace(self._path)


def spawn(command: list[str], *, cwd: Path, log: Path, detach: bool) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with its output at the end of the log.

    Without `detach` the kernel kills it when this process ends, however that happens.
    """
    shim = _shim(command, 0 if detach else os.getpid())

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                shim, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    return _forker.submit(start).result()


def spawn_with_pipes(command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a program with pipes to its standard input and output, which is killed when this process ends."""
    shim = _shim(command, os.getpid())

    def start() -> subprocess.Popen[str]:
        with log.open("w") as errors:
            return subprocess.Popen(
                shim, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(environment)
            )

    return _forker.submit(start).result()


def _shim(command: Sequence[str], parent: int) -> list[str]:
    return [sys.executable, "-I", "-S", str(_CHILD), str(parent), *command]


def wait_gone(process: ProcessId, child: subprocess.Popen[bytes] | None, limit: float) -> bool:
    """Wait until the process has ended, and reap it when it is our child; False after `limit` seconds."""
    deadline = time.monotonic() + limit
    while process.alive:
        if child is not None and child.poll() is not None:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    if child is not None:
        child.wait(timeout=5)
    return True


def wait_paused(process: ProcessId, limit: float) -> None:
    """Wait until the process has stopped, which takes its threads a moment; gives up after `limit` seconds."""
    deadline = time.monotonic() + limit
    while process.alive and not process.paused and time.monotonic() < deadline:
        time.sleep(0.005)


def tail(log: Path, lines: int) -> list[str]:
    """Return the last lines of a log; read at most its last 256 KiB."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 262_144))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


class Runner(Protocol):
    """Process of a server, started by this program or another one."""

    @property
    def pid(self) -> int | None:
        """Process id while the server runs or is paused."""
        ...

    @property
    def paused(self) -> bool:
        """True if it is frozen."""
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
        """Continue it."""
        ...

    def quit(self) -> None:
        """Ask it to print the stacks of its threads into its log (SIGQUIT); a server in Go ends after that."""
        ...


class ProcessRunner:
    """A server as a process; with `detach` it continues after this process."""

    def __init__(self, name: str, folder: Path, log: Path, *, detach: bool) -> None:
        self._name, self._folder, self._log, self._detach = name, folder, log, detach
        self._record = ProcessRecord(folder / "process.json")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while the server runs or is paused."""
        process = self._record.read()
        return process.pid if process and process.alive else None

    @property
    def paused(self) -> bool:
        """True if it is frozen."""
        process = self._record.read()
        return process is not None and process.paused

    @property
    def exit_code(self) -> int | None:
        """How what this object started has ended, negative for a signal; None while it runs."""
        return self._child.poll() if self._child else None

    def start(self, plan: ServerPlan) -> None:
        """Start it; returns at once."""
        child = spawn(plan.command, cwd=self._folder, log=self._log, detach=self._detach)
        self._child = child
        if process := inspect(child.pid):
            self._record.write(ProcessId(pid=child.pid, started=process[1]))

    def stop(self, limit: float) -> bool:
        """Ask it to end; False when it still runs after `limit` seconds."""
        process = self._record.read()
        if process is None:
            return True
        # A frozen process gets no other signal before it continues.
        process.send(signal.SIGCONT)
        process.send(signal.SIGTERM)
        return wait_gone(process, self._child_of(process), limit)

    def kill(self) -> None:
        """End it as a crash would, and wait until it has gone."""
        process = self._record.read()
        if process is None:
            return
        process.send(signal.SIGKILL)
        if not wait_gone(process, self._child_of(process), _KILL_LIMIT):
            raise ServerFailed(self._name, f"(pid {process.pid}) survived SIGKILL", None, tail(self._log, 30))

    def pause(self) -> None:
        """Freeze it; returns when its threads have stopped."""
        process = self._record.read()
        if process and process.alive:
            process.send(signal.SIGSTOP)
            wait_paused(process, _PAUSE_LIMIT)

    def resume(self) -> None:
        """Continue it."""
        if process := self._record.read():
            process.send(signal.SIGCONT)

    def quit(self) -> None:
        """Ask it to print the stacks of its threads into its log (SIGQUIT); a server in Go ends after that."""
        if process := self._record.read():
            process.send(signal.SIGQUIT)

    def _child_of(self, process: ProcessId) -> subprocess.Popen[bytes] | None:
        return self._child if self._child and self._child.pid == process.pid else None
