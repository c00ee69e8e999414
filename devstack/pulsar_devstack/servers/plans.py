"""Start and readiness of each server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from models.releases import Behaviour, parse_release
from pulsar_devstack.errors import NotInStack
from pulsar_devstack.servers import configs, oxia_security, probes, pulsar_security, zookeeper_security
from pulsar_devstack.servers.spec import Settings
from pulsar_devstack.servers.state import StackState
from pulsar_devstack.servers.toolchain import DATA, Toolchain

SETUP = "cluster-setup"
"""The name of the step that writes a new Pulsar cluster's metadata; it runs once and ends."""
LEDGERS_SETUP = "bookie-setup"
"""The name of the step that writes the root of the first BookKeeper cluster where it has a store of its own."""
SECOND_SETUP = "second-bookie-setup"
"""The name of the step that writes the root of the second BookKeeper cluster; it runs once and ends."""

_ROLES = {
    "zookeeper": ("client", "peer", "election"),
    "second-zookeeper": ("client",),
    "oxia": ("public", "metrics"),
    "bookie": ("client", "http"),
    "second-bookie": ("client", "http"),
    "broker": ("client", "http"),
    "temporal": ("client", "ui"),
}
_OPEN_PACKAGES = [
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
]
METADATA_DRIVERS = [
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
]
"""Java options with which BookKeeper's own programs and clients understand `metadata-store:` addresses."""
_TLS_OF_BOOKIES = ("bookie", "broker")
# Writing an archive takes a JVM half a minute on a busy machine.
_RECORDING_LIMIT = 300.0
# Of each shard, and the dev server has one: with the default of 20 a second each step waits 50 ms twice.
_PROMPT = "history.transferProcessorMaxPollRPS=1000"
_JUTE = "-Djute.maxbuffer=4194304"


@dataclass(frozen=True)
class ServerPlan:
    """One server, ready to be started.

    Attributes:
        name: its name in the stack.
        command: program and arguments.
        files: path in the server's folder to text, written before each start.
        after: servers that must be ready first, as far as the stack has them.
        ready: the probe; None for a step that is done when it ends with 0.
        start_limit: seconds that it may take to be ready.
        stop_limit: seconds between SIGTERM and SIGKILL.
    """

    name: str
    command: list[str]
    ready: probes.Probe | None
    files: dict[str, str] = field(default_factory=dict[str, str])
    after: tuple[str, ...] = ()
    start_limit: float = 240.0
    stop_limit: float = 30.0


def roles_of(name: str) -> tuple[str, ...]:
    """Return the roles of the ports that a server needs, the one for clients first."""
    return _ROLES[kind_of(name)]


def kind_of(name: str) -> str:
    """Return the kind of a server, from its name.

    Raises:
        NotInStack: there is no such kind.
    """
    kind = name if name in _ROLES else name.rpartition("-")[0]
    if kind not in _ROLES:
        raise NotInStack(f"unknown server {name!r}; expected one of the kinds {', '.join(_ROLES)}, with a number")
    return kind


def plan(name: str, state: StackState, folder: Path) -> ServerPlan:
    """Return the plan of a server or set-up step whose folder is `folder`."""
    if name == SETUP:
        return _setup(state)
    if name in (LEDGERS_SETUP, SECOND_SETUP):
        return _bookkeeper_setup(name, state)
    makers: dict[str, Callable[[str, StackState, Path], ServerPlan]] = {
        "zookeeper": _zookeeper,
        "second-zookeeper": _second_zookeeper,
        "oxia": _oxia,
        "bookie": _bookie,
        "second-bookie": _second_bookie,
        "broker": _broker,
        "temporal": _temporal,
    }
    made = makers[kind_of(name)](name, state, folder)
    if made.command[0] == str(state.toolchain.java):
        # Java removes what it unpacks (15 MB of each bookie) when it ends, but not when it is killed.
        temporary = f"-Djava.io.tmpdir={folder / 'data'}"
        made = replace(made, command=[made.command[0], temporary, *made.command[1:]])
    return replace(made, stop_limit=_RECORDING_LIMIT) if state.toolchain.recording else made


def _java(kind: str, state: StackState, heap_mb: int, direct_mb: int, *more: str) -> list[str]:
    tools = state.toolchain
    # C1 and the serial collector halve what a start costs; such servers live for minutes.
    flags = [f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={direct_mb}m", "-Xms32m", "-XX:TieredStopAtLevel=1"]
    flags += ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"]
    flags += [f"-Dlog4j2.configurationFile={DATA / 'log4j2.xml'}", "-Dio.netty.tryReflectionSetAccessible=true", _JUTE]
    flags += [flag for package in _OPEN_PACKAGES for flag in ("--add-opens", f"{package}=ALL-UNNAMED")]
    if tools.java_version >= 24:
        flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    if state.spec.pulsar_security and kind in _TLS_OF_BOOKIES:
        return [str(tools.java), *flags, "-cp", _without_fips(tools.jars), *more]
    return [str(tools.java), *_archive(kind, tools), *flags, "-cp", f"{tools.jars}/*", *more]


def _without_fips(jars: Path) -> str:
    """Return the class path without the FIPS edition of Bouncy Castle.

    BookKeeper's TLS prefers it, and its packages are sealed: next to the ordinary edition it cannot be loaded (5.0.1).
    """
    return ":".join(str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith("bc-fips-"))


def _zookeeper_client(kind: str, state: StackState, heap_mb: int, direct_mb: int, *more: str) -> list[str]:
    options = zookeeper_security.client_options(state.spec.zookeeper_security)
    return _java(kind, state, heap_mb, direct_mb, *options, *more)


def _archive(kind: str, tools: Toolchain) -> list[str]:
    if tools.archives is None:
        return []
    archive = tools.archives / f"{kind}.jsa"
    if tools.recording:
        return [f"-XX:ArchiveClassesAtExit={archive}"]
    # A JVM that does not find its archive gives up on the JDK's own one too.
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _merged(own: Settings, state: StackState, name: str, every: Settings) -> str:
    merged = {**own, **every, **state.settings.get(name, {})}
    if parse_release(state.toolchain.pulsar).has(Behaviour.STORE_PARAMETERS):
        merged = configs.without_batches(merged)
    return configs.render(merged)


def _zookeeper(name: str, state: StackState, folder: Path) -> ServerPlan:
    count, number = state.spec.zookeepers, int(name.rpartition("-")[2])
    quorum = {
        n: (state.ports[f"zookeeper-{n}.peer"], state.ports[f"zookeeper-{n}.election"]) for n in range(1, count + 1)
    }
    return _one_zookeeper(name, state, folder, quorum if count > 1 else {}, number)


def _second_zookeeper(name: str, state: StackState, folder: Path) -> ServerPlan:
    return _one_zookeeper(name, state, folder, {}, 1)


def _one_zookeeper(
    name: str, state: StackState, folder: Path, quorum: dict[int, tuple[int, int]], number: int
) -> ServerPlan:
    port = state.ports[f"{name}.client"]
    security = state.spec.zookeeper_security
    settings = zookeeper_security.server_lines(security, configs.zookeeper(folder / "data", port, quorum))
    config = _merged(settings, state, name, state.spec.zookeeper_settings)
    # Not synced to disk, as the bookies are not. Extended types are containers and nodes with a time to live.
    properties = ["preAllocSize=1024", "forceSync=no", "extendedTypesEnabled=true"]
    options = [*(f"-Dzookeeper.{line}" for line in properties), *zookeeper_security.server_options(security)]
    command = _java("zookeeper", state, 256, 64, *options)
    return ServerPlan(
        name=name,
        command=[*command, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"],
        files={"zoo.cfg": config, "data/myid": f"{number}\n", **zookeeper_security.server_files(security)},
        ready=partial(probes.zookeeper_serves, port, security.client if security else None),
    )


def _oxia(name: str, state: StackState, folder: Path) -> ServerPlan:
    address = f"{configs.LOOPBACK}:{state.ports[f'{name}.public']}"
    metrics = f"{configs.LOOPBACK}:{state.ports[f'{name}.metrics']}"
    folders = [f"--data-dir={folder / 'data' / 'db'}", f"--wal-dir={folder / 'data' / 'wal'}"]
    options = ["-p", address, "-m", metrics, "-s", str(state.spec.oxia_shards), "--wal-sync-data=false"]
    security = state.spec.oxia_security
    # The port of the metrics opens after the one for clients, and asks for neither certificate nor token.
    ready = partial(probes.http_answers_ok, f"http://{metrics}/metrics") if security else None
    return ServerPlan(
        name=name,
        command=[str(state.toolchain.oxia), "standalone", *options, *folders, *oxia_security.server_options(security)],
        files=oxia_security.server_files(security),
        ready=ready or partial(probes.oxia_serves, address),
    )


def _setup(state: StackState) -> ServerPlan:
    url = state.metadata_url()
    # No client uses these addresses without a broker, but the command requires them.
    client, web = state.ports.get("broker-1.client", 6650), state.ports.get("broker-1.http", 8080)
    addresses = ["-uw", f"http://{configs.LOOPBACK}:{web}", "-ub", f"pulsar://{configs.LOOPBACK}:{client}"]
    if state.spec.pulsar_security:
        # The command requires the first one.
        addresses = ["-uw", "", "-tw", f"https://{configs.LOOPBACK}:{web}"]
        addresses += ["-tb", f"pulsar+ssl://{configs.LOOPBACK}:{client}"]
    main = ["org.apache.pulsar.PulsarClusterMetadataSetup", "-c", state.spec.cluster, "-md", url, "-cms", url]
    if state.spec.ledgers_apart:
        # It finds no host in a `metadata-store:` address (5.0.1), and only records this one for function workers.
        address = f"zk+hierarchical://{state.ledgers_url().removeprefix('zk:')}/ledgers"
        main += ["--existing-bk-metadata-service-uri", address]
    return ServerPlan(
        name=SETUP,
        command=[*_zookeeper_client(SETUP, state, 128, 64), *main, *addresses],
        files=zookeeper_security.client_files(state.spec.zookeeper_security),
        ready=None,
        after=_stores(state),
    )


def _bookkeeper_setup(name: str, state: StackState) -> ServerPlan:
    first = name == LEDGERS_SETUP
    uri = configs.bookkeeper_uri(state.ledgers_url()) if first else state.second_bookkeeper_uri()
    # It loads what a bookie does, so a bookie's archive fits.
    java = _zookeeper_client("bookie", state, 128, 64, *METADATA_DRIVERS)
    shell = [*java, "org.apache.bookkeeper.bookie.BookieShell"]
    return ServerPlan(
        name=name,
        command=[*shell, "-conf", "bookkeeper.conf", "initnewcluster"],
        files={
            "bookkeeper.conf": configs.render({"metadataServiceUri": uri}),
            **zookeeper_security.client_files(state.spec.zookeeper_security),
        },
        ready=None,
        after=_stores(state),
    )


def _bookie(name: str, state: StackState, folder: Path) -> ServerPlan:
    uri = configs.bookkeeper_uri(state.ledgers_url())
    return _one_bookie(name, state, folder, uri, SETUP, *([LEDGERS_SETUP] if state.spec.ledgers_apart else []))


def _second_bookie(name: str, state: StackState, folder: Path) -> ServerPlan:
    return _one_bookie(name, state, folder, state.second_bookkeeper_uri(), SECOND_SETUP)


def _one_bookie(name: str, state: StackState, folder: Path, uri: str, *setup: str) -> ServerPlan:
    port, http_port = state.ports[f"{name}.client"], state.ports[f"{name}.http"]
    security = state.spec.pulsar_security
    settings = pulsar_security.bookie_lines(security, configs.bookie(name, folder / "data", port, http_port, uri))
    return ServerPlan(
        name=name,
        command=[
            *_zookeeper_client("bookie", state, 192, 192, *METADATA_DRIVERS),
            "org.apache.bookkeeper.server.Main",
            "--conf",
            "bookkeeper.conf",
        ],
        files={
            "bookkeeper.conf": _merged(settings, state, name, state.spec.bookie_settings),
            **pulsar_security.files(security),
            **zookeeper_security.client_files(state.spec.zookeeper_security),
        },
        after=(*_stores(state), *setup),
        # The HTTP server is off then: it would be plain.
        ready=partial(probes.bookie_serves, port)
        if security
        else partial(probes.http_answers_ok, f"http://{configs.LOOPBACK}:{http_port}/api/v1/bookie/is_ready"),
    )


def _broker(name: str, state: StackState, folder: Path) -> ServerPlan:
    del folder
    port, http_port = state.ports[f"{name}.client"], state.ports[f"{name}.http"]
    metadata = configs.broker_metadata(state.metadata_url(), state.ledgers_url())
    security = state.spec.pulsar_security
    plain = configs.broker(state.spec.cluster, port, http_port, metadata, state.spec.replicas)
    settings = pulsar_security.broker_lines(security, plain)
    java = _zookeeper_client("broker", state, 384, 256)
    ready = f"{'https' if security else 'http'}://{configs.LOOPBACK}:{http_port}/admin/v2/brokers/ready"
    token = pulsar_security.signer(security).token(security.broker_role) if security else ""
    return ServerPlan(
        name=name,
        command=[*java, "org.apache.pulsar.PulsarBrokerStarter", "-c", "broker.conf"],
        files={
            "broker.conf": _merged(settings, state, name, state.spec.broker_settings),
            **pulsar_security.files(security),
            **zookeeper_security.client_files(state.spec.zookeeper_security),
        },
        # A broker that starts before its bookies reports that it is ready, but may not know them for long (seen).
        after=(*_of_kinds(state, "zookeeper", "second-zookeeper", "oxia", "bookie", "second-bookie"), SETUP),
        ready=partial(probes.http_answers_ok, ready, token),
    )


def _temporal(name: str, state: StackState, folder: Path) -> ServerPlan:
    client, web = state.ports[f"{name}.client"], state.ports[f"{name}.ui"]
    options = ["--ip", configs.LOOPBACK, "--port", str(client), "--ui-port", str(web)]
    options += ["--db-filename", str(folder / "data" / "temporal.db")]
    options += ["--dynamic-config-value", _PROMPT]
    attributes = state.spec.temporal_search_attributes.items()
    options += [option for key, kind in attributes for option in ("--search-attribute", f"{key}={kind}")]
    return ServerPlan(
        name=name,
        command=[str(state.toolchain.temporal), "server", "start-dev", *options],
        ready=partial(probes.temporal_serves, f"{configs.LOOPBACK}:{client}"),
    )


def _stores(state: StackState) -> tuple[str, ...]:
    return _of_kinds(state, "zookeeper", "second-zookeeper", "oxia")


def _of_kinds(state: StackState, *kinds: str) -> tuple[str, ...]:
    return tuple(name for name in state.spec.names if kind_of(name) in kinds)
