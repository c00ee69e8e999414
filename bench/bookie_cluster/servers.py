"""Two BookKeeper clusters of two bookies each, as in production: full just-in-time compilation, journals synced."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.lifecycle.servers import Servers
from pulsar_devstack.servers import configs, probes
from pulsar_devstack.servers.ports import PortBlock
from pulsar_devstack.servers.provision import Toolchain

BOOKIES = 2
_SETUP_SECONDS = 120.0
# Of configs.bookie, what was made for small stacks.
_SETTINGS = {
    "journalSyncData": "true",
    "journalMaxSizeMB": "512",
    "journalPreAllocSizeMB": "16",
    "dbStorage_writeCacheMaxSizeMb": "128",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "dbStorage_rocksDB_blockCacheSize": "33554432",
    "logSizeLimit": "1073741824",
    "httpServerEnabled": "true",
}
_HEAP_MB, _DIRECT_MB, _ZOOKEEPER_HEAP_MB = 384, 512, 512


class Clusters(Servers):
    """A source and a target, empty, on one ZooKeeper.

    Attributes:
        source: metadata service URI of the first.
        target: that of the second.

    Args:
        folder: an empty folder for data and logs.
        tools: the programs.
        heap_mb: of ZooKeeper.
    """

    def __init__(self, folder: Path, tools: Toolchain, heap_mb: int = _ZOOKEEPER_HEAP_MB) -> None:
        super().__init__(folder, tools)
        self._heap_mb = heap_mb
        self._block = PortBlock()
        taken: set[int] = set()
        for _ in range(1 + 2 * 2 * BOOKIES):
            taken.add(self._block.take(taken))
        self._zookeeper_port, *self._ports = sorted(taken)
        store = f"zk+hierarchical://{configs.LOOPBACK}:{self._zookeeper_port}"
        self.source, self.target = f"{store}/source-ledgers", f"{store}/target-ledgers"
        self.zookeeper_address = f"{configs.LOOPBACK}:{self._zookeeper_port}"

    def start(self) -> None:
        """Start ZooKeeper, initialise both clusters, and start their bookies."""
        self.zookeeper(self.folder / "zookeeper", self._zookeeper_port, self._heap_mb)()
        ports = iter(self._ports)
        waits: list[Callable[[], None]] = []
        for cluster, uri in (("source", self.source), ("target", self.target)):
            self._initialise(cluster, uri)
            waits += [self._bookie(f"{cluster}-{n}", uri, next(ports), next(ports)) for n in range(1, BOOKIES + 1)]
        for wait in waits:
            wait()

    def _initialise(self, cluster: str, uri: str) -> None:
        config = self.folder / f"{cluster}.conf"
        config.write_text(configs.render({"metadataServiceUri": uri}))
        shell = self.java(["org.apache.bookkeeper.bookie.BookieShell", "-conf", str(config), "initnewcluster"])
        with (self.folder / f"{cluster}-setup.log").open("w") as log:
            subprocess.run(shell, cwd=self.folder, stdout=log, stderr=log, check=True, timeout=_SETUP_SECONDS)

    def _bookie(self, name: str, uri: str, port: int, http_port: int) -> Callable[[], None]:
        settings = configs.bookie(name, self.folder / name, port, http_port, uri)
        config = self.folder / f"{name}.conf"
        config.write_text(configs.render({**settings, **_SETTINGS}))
        main = ["org.apache.bookkeeper.server.Main", "--conf", str(config)]
        command = self.java(main, f"-Xmx{_HEAP_MB}m", f"-XX:MaxDirectMemorySize={_DIRECT_MB}m")
        url = f"http://{configs.LOOPBACK}:{http_port}/api/v1/bookie/is_ready"
        return self.spawn(name, command, partial(probes.http_answers_ok, url))
