"""A gateway in a separate process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_devstack.servers import processes
from pulsar_devstack.servers.stack import Stack
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[3]
_LIMIT = 60.0
_READY = re.compile(r"gateway ready: (\S+) ")


class GatewayProcess:
    """`pulsar-migrate gateway` for one cluster, on a free port; a context manager that kills it at the end.

    Args:
        temporal_address: `host:port`.
        stack: the cluster.
        folder: for the log and the ready file.
        settings: of the gateway besides, without their prefix: `tokens_file` and so on.

    Attributes:
        url: where it serves.
        log: what it tells.
    """

    def __init__(self, temporal_address: str, stack: Stack, folder: Path, **settings: str) -> None:
        self.url = ""
        self.log = folder / "gateway.log"
        self._ready_file = folder / "gateway.ready"
        self._child: subprocess.Popen[bytes] | None = None
        given = {"port": "0", **settings}
        self._environment = {"TEMPORAL_ADDRESS": temporal_address, **stack.gateway_settings(**given)}

    def __enter__(self) -> Self:
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        program = [sys.executable, "-m", "pulsar_migrate", "gateway", "--ready-file", str(self._ready_file)]
        command = ["/usr/bin/env", *variables, *program]
        self._child = processes.spawn(command, cwd=_ROOT, log=self.log, detach=False)
        try:
            line = wait_for("the gateway's ready file", self._ready_line, _LIMIT)
        except BaseException:
            self.kill()
            raise
        ready = _READY.match(line)
        assert ready, line
        self.url = ready[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def story(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(processes.tail(self.log, 100))

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        assert self._child is not None
        return self._child.wait(_LIMIT)

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None and self._child.poll() is None:
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.wait(_LIMIT)

    def _ready_line(self) -> str:
        assert self._child is not None
        assert self._child.poll() is None, f"the gateway has ended:\n{self.story}"
        return self._ready_file.read_text() if self._ready_file.exists() else ""
