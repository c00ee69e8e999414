"""The two stores of one run, as in production: full just-in-time compilation, every write synced to disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bench.lifecycle.servers import Servers
from bench.metadata_store.dataset import Dataset
from clients.stores import Access, open_reader
from models.store_url import parse_store_url
from pulsar_devstack.servers import configs, probes
from pulsar_devstack.servers.ports import PortBlock
from pulsar_devstack.servers.toolchain import Toolchain

_WARM_PARTS = 16


class Ports:
    """Ports of both stores, the same in each run."""

    def __init__(self) -> None:
        self._block = PortBlock()
        taken: set[int] = set()
        for _ in range(3):
            taken.add(self._block.take(taken))
        self.zookeeper, self.oxia, self.oxia_metrics = sorted(taken)


class Stores(Servers):
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
        super().__init__(folder, tools)
        self._dataset, self._ports, self._shards = dataset, ports, shards

    def start(self) -> None:
        """Start both, and read the dataset once."""
        data = self.folder / "zookeeper"
        (data / "version-2").mkdir(parents=True)
        # A copy: the server replaces the snapshot by one of its own at its start.
        shutil.copyfile(self._dataset.snapshot, data / "version-2" / "snapshot.1")
        # In memory a znode takes some 500 bytes next to its value, and the collector needs room.
        zookeeper_ready = self.zookeeper(data, self._ports.zookeeper, 512 + 5 * self._dataset.mb)
        oxia_ready = self._start_oxia()
        zookeeper_ready()
        oxia_ready()
        self._warm()

    def _start_oxia(self) -> Callable[[], None]:
        address = f"{configs.LOOPBACK}:{self._ports.oxia}"
        folders = [f"--data-dir={self.folder / 'oxia' / 'db'}", f"--wal-dir={self.folder / 'oxia' / 'wal'}"]
        options = ["-p", address, "-m", f"{configs.LOOPBACK}:{self._ports.oxia_metrics}", "-s", str(self._shards)]
        command = [str(self.tools.oxia), "standalone", *options, "--wal-sync-data=true", *folders]
        return self.spawn("oxia", command, lambda: probes.oxia_serves(address))

    def _warm(self) -> None:
        """Read everything once: the first read after a start is several times slower."""
        with open_reader(parse_store_url(self.source), Access()) as reader:
            for partition in reader.partitions(_WARM_PARTS):
                for _ in reader.scan(partition):
                    continue
