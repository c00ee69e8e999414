"""Servers of a benchmark, as in production: full just-in-time compilation."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers import configs, probes, processes
from pulsar_devstack.servers.toolchain import DATA, Toolchain

_START_SECONDS = 900.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05


class Servers(ABC):
    """Servers in one folder, each with a log of its own; killed at the end of the `with`.

    Args:
        folder: for data and logs.
        tools: the programs.
    """

    def __init__(self, folder: Path, tools: Toolchain) -> None:
        self.folder, self.tools = folder, tools
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Names of the servers to their process ids."""
        return {name: process.pid for name, process in self._servers.items()}

    @abstractmethod
    def start(self) -> None:
        """Start them all, and return when they are ready."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def spawn(self, name: str, command: list[str], ready: Callable[[], bool]) -> Callable[[], None]:
        """Start one; the result waits until it is ready, or raises `ServerFailed`."""
        process = processes.spawn(command, cwd=self.folder, log=self.folder / f"{name}.log", detach=False)
        self._servers[name] = process
        return lambda: self._await(name, ready)

    def java(self, main: Sequence[str], *options: str) -> list[str]:
        """Return the command line of a Java server with full just-in-time compilation, as in production."""
        logging = f"-Dlog4j2.configurationFile={DATA / 'log4j2.xml'}"
        return [str(self.tools.java), *options, logging, "-cp", f"{self.tools.jars}/*", *main]

    def zookeeper(self, data: Path, port: int, heap_mb: int) -> Callable[[], None]:
        """Start a ZooKeeper, on what `data` holds."""
        config = self.folder / "zoo.cfg"
        config.write_text(configs.render(configs.zookeeper(data, port, {})))
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        command = self.java(main, f"-Xmx{heap_mb}m")
        return self.spawn("zookeeper", command, lambda: probes.zookeeper_serves(port))

    def _await(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            code = self._servers[name].poll()
            if code is not None or time.monotonic() > deadline:
                cause = f"was not ready after {_START_SECONDS:.0f} s" if code is None else f"ended with {code}"
                raise ServerFailed(name, cause, code, processes.tail(self.folder / f"{name}.log", 30))
            time.sleep(_POLL_SECONDS)

    def _stop(self) -> None:
        for process in self._servers.values():
            process.send_signal(signal.SIGKILL)
        for process in self._servers.values():
            process.wait(_STOP_SECONDS)
