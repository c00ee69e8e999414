"""A stack of real servers on one machine: start, stop, look at them, and hurt them on purpose.

    with Stack(StackSpec(zookeepers=1, bookies=1, brokers=1), folder, provision()) as stack:
        stack["broker-1"].kill()
        stack["broker-1"].start()

Everything about a stack lies in its folder, so another shell can open it (`Stack.open`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_devstack.errors import NotInStack, StackConflict
from pulsar_devstack.servers import configs, plans
from pulsar_devstack.servers.cache import Progress
from pulsar_devstack.servers.ports import PortBlock
from pulsar_devstack.servers.processes import ProcessRunner, Runner
from pulsar_devstack.servers.server import Server, ServerStatus, silent, start_all
from pulsar_devstack.servers.spec import Settings, StackSpec
from pulsar_devstack.servers.state import StackFolder, StackState
from pulsar_devstack.servers.toolchain import Toolchain

# A broker or a bookie without its metadata store waits for it instead of ending.
_STOP_ORDER = (("broker", "temporal"), ("bookie", "second-bookie"), ("zookeeper", "second-zookeeper", "oxia"))

__all__ = ["Server", "ServerStatus", "Stack", "StackSpec"]


class Stack:
    """The servers of one spec in one folder; as a context it starts them, and kills them at the end.

    Args:
        spec: which servers. A folder that holds a stack already takes only the same spec, and keeps its data.
        folder: of logs, data and state.
        toolchain: the programs, from `provision()`.
        detach: let the servers outlive this process.
        attach: take the servers that run already as they are.

    Raises:
        StackConflict: the folder holds another stack, or its servers run already.
    """

    def __init__(
        self, spec: StackSpec, folder: Path, toolchain: Toolchain, *, detach: bool = False, attach: bool = False
    ) -> None:
        self.folder = folder.absolute()
        self.detach = detach
        recorded = StackFolder.read(self.folder)
        if recorded and recorded.spec != spec:
            raise StackConflict(f"{self.folder} holds another stack; use that one's options, or remove the folder")
        self._block = None if attach else PortBlock(recorded.first_port if recorded else None)
        if recorded:
            state = recorded.model_copy(update={"toolchain": toolchain})
        else:
            block = self._block or PortBlock()
            ports = _take_ports(block, spec.names, {})
            state = StackState(spec=spec, toolchain=toolchain, ports=ports, first_port=block.first)
        self._memory = StackFolder(self.folder, state)
        self._servers = {name: self._server(name) for name in spec.names}
        if not attach:
            self._refuse_running()
            self._memory.save()

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Return the stack that another process started in the folder; servers started through this one are detached.

        Raises:
            StackConflict: the folder holds no stack.
        """
        state = StackFolder.read(folder.absolute())
        if state is None:
            raise StackConflict(f"{folder} holds no stack; start one (pulsar-migrate dev up)")
        return cls(state.spec, folder, state.toolchain, detach=True, attach=True)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.down(graceful=False)

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def __getitem__(self, name: str) -> Server:
        try:
            return self._servers[name]
        except KeyError:
            raise NotInStack(f"the stack has no server {name!r}; it has {', '.join(self._servers)}") from None

    @property
    def state(self) -> StackState:
        """State that its folder records."""
        return self._memory.state

    def up(self, progress: Progress = silent) -> None:
        """Start what does not run, each server as soon as those before it are ready; returns when all are ready.

        Args:
            progress: receives a line for each server that has become ready.

        Raises:
            ServerFailed: one ended or took too long; all of them are down again.
        """
        try:
            start_all([server for server in self if not server.alive], progress)
        except BaseException:
            self.down(graceful=False)
            raise

    def down(self, *, graceful: bool = True) -> None:
        """Stop all servers, those that others need last, or kill them all at once; their data stay."""
        layers = _STOP_ORDER if graceful else (tuple(kind for layer in _STOP_ORDER for kind in layer),)
        with ThreadPoolExecutor(max(1, len(self._servers))) as pool:
            for kinds in layers:
                layer = [server for server in self if server.kind in kinds]
                list(pool.map(Server.stop if graceful else Server.kill, layer))
        self._release()

    def status(self) -> list[ServerStatus]:
        """Return one row for each server, in the order of the spec."""
        return [server.status() for server in self]

    def logs(self, name: str, tail: int = 100) -> list[str]:
        """Return the last lines of a server's log.

        Raises:
            NotInStack: there is no such server.
        """
        return self[name].tail(tail)

    def add(self, name: str) -> Server:
        """Start one more bookie (of either cluster) or broker, which must be the next in number.

        Raises:
            NotInStack: it is of another kind, or not the next in number.
            ServerFailed: it ended or took too long.
        """
        fields = {"bookie": "bookies", "second-bookie": "second_bookies", "broker": "brokers"}
        field = fields.get(plans.kind_of(name))
        count = getattr(self.state.spec, field) + 1 if field else 0
        if field is None or not name.endswith(f"-{count}"):
            raise NotInStack(f"{name!r} cannot be added; take the next bookie or broker, bookie-N or broker-N")
        block = self._block or PortBlock(self.state.first_port)
        ports = {**self.state.ports, **_take_ports(block, [name], self.state.ports)}
        spec = self.state.spec.model_copy(update={field: count})
        self._memory.update(spec=spec, ports=ports)
        self._servers[name] = self._server(name)
        self._servers[name].start()
        return self._servers[name]

    def reconfigure(self, name: str, **settings: str) -> Server:
        """Change lines of one server's configuration permanently, and restart it on the same data if it runs.

        Raises:
            NotInStack: there is no such server.
            ServerFailed: it did not come back.
        """
        return self._reconfigure(name, settings)

    def use_metadata(self, url: str, names: Iterable[str] | None = None) -> None:
        """Restart brokers and bookies (or the named ones) on another metadata store, one after the other.

        Raises:
            ServerFailed: one did not come back.
        """
        lines = {"bookie": configs.bookie_metadata(url), "broker": configs.broker_metadata(url)}
        for name in list(names) if names is not None else [*self._servers]:
            if own := lines.get(plans.kind_of(name)):
                self._reconfigure(name, own)

    def use_bookies(self, uri: str, names: Iterable[str] | None = None) -> None:
        """Configure brokers (or the named ones) for another BookKeeper cluster.

        Those that run are stopped first, all of them, and started when all know it: while one broker writes to the one
        cluster and another to the other, topics that move between them lose messages. Those that are down are left so.

        Raises:
            ServerFailed: one did not come back.
        """
        chosen = [self[name] for name in names] if names is not None else self._of_kind("broker")
        running = [server for server in chosen if server.alive]
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(Server.stop, running))
        for server in chosen:
            self._reconfigure(server.name, configs.broker_bookies(uri))
        start_all(running)

    @property
    def bookkeeper_uri(self) -> str:
        """The metadata service URI of the first BookKeeper cluster, as brokers and bookies were first started on it."""
        return configs.bookkeeper_uri(self.state.ledgers_url())

    @property
    def second_bookkeeper_uri(self) -> str:
        """The metadata service URI of the second BookKeeper cluster; `NotInStack` without one."""
        self._needs("second-bookie-1")
        return self.state.second_bookkeeper_uri()

    @property
    def zk_url(self) -> str:
        """`zk:host:port[,...][/chroot]`; `NotInStack` without a ZooKeeper."""
        self._needs("zookeeper-1")
        return self.state.zookeeper_url()

    @property
    def second_zk_url(self) -> str:
        """`zk:host:port` of the second ZooKeeper; `NotInStack` without one."""
        return f"zk:{self._needs('second-zookeeper-1').address}"

    @property
    def oxia_url(self) -> str:
        """`oxia://host:port/default` of the first Oxia; `NotInStack` without one."""
        self._needs("oxia-1")
        return self.state.oxia_url()

    @property
    def oxia_urls(self) -> list[str]:
        """One URL of each Oxia."""
        return [self.state.oxia_url(number) for number in range(1, self.state.spec.oxias + 1)]

    @property
    def metadata_url(self) -> str:
        """The store that brokers and bookies were first started on."""
        return self.state.metadata_url()

    @property
    def temporal_address(self) -> str:
        """`host:port` of Temporal's frontend; `NotInStack` without one."""
        return self._needs("temporal").address

    @property
    def temporal_ui(self) -> str:
        """The Web UI's address; `NotInStack` without Temporal."""
        return f"http://{configs.LOOPBACK}:{self._needs('temporal').ports['ui']}"

    @property
    def broker_url(self) -> str:
        """`pulsar://host:port[,host:port...]` of all brokers, `pulsar+ssl://…` if they have TLS."""
        scheme = "pulsar+ssl" if self.state.spec.pulsar_security else "pulsar"
        return f"{scheme}://" + ",".join(server.address for server in self._of_kind("broker"))

    @property
    def admin_urls(self) -> list[str]:
        """`http://host:port` of each broker, `https://…` if they have TLS."""
        scheme = "https" if self.state.spec.pulsar_security else "http"
        return [f"{scheme}://{configs.LOOPBACK}:{server.ports['http']}" for server in self._of_kind("broker")]

    def gateway_settings(self, **more: str) -> dict[str, str]:
        """Return the environment of a gateway of scalable topics for this cluster.

        Args:
            more: further settings, or others, by their names: `tokens_file` and so on.
        """
        given = {
            "cluster": self.state.spec.cluster,
            "metadata_url": self.metadata_url,
            "admin_urls": json.dumps(self.admin_urls),
            **more,
        }
        return {f"PULSAR_MIGRATE_GATEWAY_{name.upper()}": value for name, value in given.items()}

    def runner(self, name: str, folder: Path, log: Path) -> Runner:
        """Return the runner that starts and ends the server's process; another kind of stack returns another kind."""
        return ProcessRunner(name, folder, log, detach=self.detach)

    def _server(self, name: str) -> Server:
        return Server(name, self._memory, self.runner)

    def _of_kind(self, kind: str) -> list[Server]:
        return [server for server in self if server.kind == kind]

    def _reconfigure(self, name: str, settings: Settings) -> Server:
        server = self[name]
        own = {**self.state.settings.get(name, {}), **settings}
        self._memory.update(settings={**self.state.settings, name: own})
        if server.alive:
            server.restart()
        return server

    def _refuse_running(self) -> None:
        if running := [server.name for server in self if server.alive]:
            self._release()
            raise StackConflict(f"{', '.join(running)} of {self.folder} run; stop them (pulsar-migrate dev down)")

    def _release(self) -> None:
        if self._block:
            self._block.release()
            self._block = None

    def _needs(self, name: str) -> Server:
        return self[name]


def _take_ports(block: PortBlock, names: Iterable[str], taken: dict[str, int]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for name in names:
        for role in plans.roles_of(name):
            ports[f"{name}.{role}"] = block.take({*taken.values(), *ports.values()})
    return ports
