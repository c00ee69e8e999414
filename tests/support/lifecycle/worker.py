"""A worker of ours as a process of its own, to be used, killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_devstack.servers import processes
from pulsar_devstack.servers.ports import PortBlock
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[3]
_READY_LIMIT = 120.0
_END_LIMIT = 40.0
_STORY_LINES = 150


class WorkerProcess:
    """`pulsar-migrate worker` against one Temporal; a context manager that kills it at the end.

    Args:
        temporal_address: `host:port`.
        folder: for the log and the ready file.
        settings: the worker's settings besides, `PULSAR_MIGRATE_…` to text.
        cwd: the working directory; the checkout by default.
        program: what is asked to be a worker; the checkout's by default.
    """

    def __init__(
        self,
        temporal_address: str,
        folder: Path,
        *,
        cwd: Path = _ROOT,
        program: Sequence[str] = (sys.executable, "-m", "pulsar_migrate"),
        **settings: str,
    ) -> None:
        self.log = folder / "worker.log"
        # No other program takes it while the worker is down.
        self._ports = PortBlock()
        self.metrics_address = f"127.0.0.1:{self._ports.take(set())}"
        self._ready_file = folder / "worker.ready"
        self._cwd, self._program = cwd, program
        self._child: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []
        self._environment = {
            "TEMPORAL_ADDRESS": temporal_address,
            "PULSAR_MIGRATE_METRICS_ADDRESS": self.metrics_address,
            "PULSAR_MIGRATE_SPARK_MASTER": "local[2]",
            **settings,
        }

    def __enter__(self) -> Self:
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The worker's own process.

        Raises:
            AssertionError: it does not run.
        """
        assert self._child is not None
        assert self._child.poll() is None, self.story("the worker has ended")
        return self._child.pid

    @property
    def pids(self) -> list[int]:
        """The worker's own process; empty if it does not run."""
        return [self._child.pid] if self._child is not None and self._child.poll() is None else []

    def launch(self) -> None:
        """Start the process and return at once."""
        self._ready_file.unlink(missing_ok=True)
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        program = [*self._program, "worker", "--ready-file", str(self._ready_file)]
        self._child = processes.spawn(["/usr/bin/env", *variables, *program], cwd=self._cwd, log=self.log, detach=False)
        self._sessions.append(self._child.pid)

    def wait_ready(self) -> None:
        """Wait until it serves its queue.

        Raises:
            AssertionError: it ended, or took too long; its log is in the message.
        """
        wait_for("the worker's ready file", lambda: bool(self.pid) and self._ready_file.exists(), _READY_LIMIT)

    def kill(self) -> list[int]:
        """End the worker alone with SIGKILL, as a crash would; returns processes of its session that outlive it.

        Spark's JVM ends by itself when it loses the worker; what is still there after some seconds is killed too.
        """
        assert self._child is not None
        os.kill(self.pid, signal.SIGKILL)
        self._child.wait(_END_LIMIT)
        return self._end_session(timeout=10)

    def stop(self) -> int:
        """Ask it to end (SIGTERM), and return its exit code."""
        assert self._child is not None
        os.kill(self.pid, signal.SIGTERM)
        return self._child.wait(_END_LIMIT)

    def restart(self) -> None:
        """Kill it if it runs, start it, and wait until it is ready."""
        if self._child is not None and self._child.poll() is None:
            self.kill()
        self.launch()
        self.wait_ready()

    def pause(self) -> None:
        """Freeze the worker alone (SIGSTOP); its executors continue."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a frozen worker."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it with all that it started."""
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.wait(_END_LIMIT)
        self._end_session(timeout=0)
        self._ports.release()

    def story(self, headline: str) -> str:
        """Return a headline with the end of the log, and the exit code if the worker has ended."""
        ended = self._child.poll() if self._child else None
        exit_lines = [] if ended is None else [f"the worker has ended by itself or was killed: exit code {ended}"]
        return "\n".join([headline, *processes.tail(self.log, _STORY_LINES), *exit_lines])

    def _end_session(self, timeout: float) -> list[int]:
        """Wait for the session's processes, kill those that are alive after the timeout, and return them."""
        try:
            wait_for("the end of the worker's children", lambda: not self._survivors(), timeout)
        except AssertionError:
            survivors = self._survivors()
            for pid in survivors:
                _kill(pid)
            return survivors
        return []

    def _survivors(self) -> list[int]:
        return [pid for session in self._sessions for pid in _members(session)]


def _members(session: int) -> list[int]:
    """Return the living processes of a session: the pid and session of `/proc/<pid>/stat`."""
    pids: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            pids.append(int(stat.parent.name))
    return pids


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
