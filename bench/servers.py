"""The two stores of one run, as in production: full just-in-time compilation, every write synced to disk."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.dataset import Dataset
from clients.access import Access, open_reader
from deploy.devstack import configs, probes, supervise
from deploy.devstack.errors import ServerFailed
from deploy.devstack.ports import PortBlock
from deploy.devstack.provision import DATA, Toolchain
from models.store_url import parse_store_url

_START_SECONDS = 180.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_WARM_PARTS = 16


class Ports:
    """Ports of both stores, the same in each run."""

    def __init__(self) -> None:
        self._block = PortBlock()
        taken: set[int] = set()
        for _ in range(3):
            taken.add(self._block.take(taken))
        self.zookeeper, self.oxia, self.oxia_metrics = sorted(taken)


class Stores:
    """A ZooKeeper that holds the dataset and has been read once, and an empty Oxia; killed at the end of the `with`.

    Args:
        dataset: what ZooKeeper loads at its start, from a copy.
        folder: an empty folder for data and logs.
        tools: the programs.
        ports: where they listen.
        shards: of Oxia.
    """

    def __init__(self, dataset: Dataset, folder: Path, tools: Toolchain, ports: Ports, shards: int) -> None:
        self.source = f"zk:{configs.LOOPBACK}:{ports.zookeeper}"
        self.target = f"oxia://{configs.LOOPBACK}:{ports.oxia}/default"
        self.zookeeper_address = f"{configs.LOOPBACK}:{ports.zookeeper}"
        self._dataset, self._folder, self._tools, self._ports, self._shards = dataset, folder, tools, ports, shards
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        """`zookeeper` and `oxia` to their process ids."""
        return {name: process.pid for name, process in self._servers.items()}

    def __enter__(self) -> Self:
        try:
            zookeeper_ready = self._start_zookeeper()
            oxia_ready = self._start_oxia()
            self._await("zookeeper", zookeeper_ready)
            self._await("oxia", oxia_ready)
            self._warm()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start_zookeeper(self) -> Callable[[], bool]:
        data = self._folder / "zookeeper"
        (data / "version-2").mkdir(parents=True)
        # A copy: the server replaces the snapshot by one of its own at its start.
        shutil.copyfile(self._dataset.snapshot, data / "version-2" / "snapshot.1")
        config = self._folder / "zoo.cfg"
        config.write_text(configs.render(configs.zookeeper(data, self._ports.zookeeper, {})))
        # In memory a znode takes some 500 bytes beside its value, and the collector needs room.
        heap = 512 + 5 * self._dataset.mb
        options = [f"-Xmx{heap}m", f"-Dlog4j2.configurationFile={DATA / 'log4j2.xml'}"]
        main = ["-cp", f"{self._tools.jars}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        self._spawn("zookeeper", [str(self._tools.java), *options, *main])
        return lambda: probes.zookeeper_serves(self._ports.zookeeper)

    def _start_oxia(self) -> Callable[[], bool]:
        address = f"{configs.LOOPBACK}:{self._ports.oxia}"
        folders = [f"--data-dir={self._folder / 'oxia' / 'db'}", f"--wal-dir={self._folder / 'oxia' / 'wal'}"]
        options = ["-p", address, "-m", f"{configs.LOOPBACK}:{self._ports.oxia_metrics}", "-s", str(self._shards)]
        self._spawn("oxia", [str(self._tools.oxia), "standalone", *options, "--wal-sync-data=true", *folders])
        return lambda: probes.oxia_serves(address)

    def _spawn(self, name: str, command: list[str]) -> None:
        log = self._folder / f"{name}.log"
        self._servers[name] = supervise.spawn(command, cwd=self._folder, log=log, detach=False)

    def _await(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            code = self._servers[name].poll()
            if code is not None or time.monotonic() > deadline:
                cause = f"was not ready after {_START_SECONDS:.0f} s" if code is None else f"ended with {code}"
                raise ServerFailed(name, cause, code, supervise.tail(self._folder / f"{name}.log", 30))
            time.sleep(_POLL_SECONDS)

    def _warm(self) -> None:
        """Read everything once: the first read after a start is several times slower, whoever does it."""
        reader = open_reader(parse_store_url(self.source), Access())
        try:
            for partition in reader.partitions(_WARM_PARTS):
                for _ in reader.scan(partition):
                    continue
        finally:
            reader.close()

    def _stop(self) -> None:
        for process in self._servers.values():
            process.send_signal(signal.SIGKILL)
        for process in self._servers.values():
            process.wait(_STOP_SECONDS)
