"""The same stack in containers, through testcontainers, for machines where a container engine answers.

Containers share the host's network and see the stack's folder under its own path, so ports, addresses that servers
advertise, settings, logs and data are those of the processes. So are certificates and keys. Temporal stays a process.
"""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_devstack.servers import plans
from pulsar_devstack.servers.plans import ServerPlan
from pulsar_devstack.servers.processes import ProcessRunner, Runner
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.spec import StackSpec
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import DATA

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_OFFICIAL = {"ZOOKEEPER": "zookeeper:3.9", "OXIA": "oxia/oxia:latest"}
_PRODUCT = {"zookeeper": "ZOOKEEPER", "second-zookeeper": "ZOOKEEPER", "oxia": "OXIA"}
# Shell words, because the folder in ZooKeeper's image is named after its version.
_CLASSPATH = {"ZOOKEEPER": '"$(echo /apache-zookeeper-*/lib)/*"', "PULSAR": "'/pulsar/lib/*'"}
_PING_LIMIT = 5


def image_of(product: str) -> str:
    """Return the image of `ZOOKEEPER`, `OXIA` or `PULSAR`: `$PULSAR_MIGRATE_IMAGE_<product>`, or the official one."""
    official = _OFFICIAL.get(product) or f"apachepulsar/pulsar:{chosen_release().version}"
    return os.environ.get(f"PULSAR_MIGRATE_IMAGE_{product}", official)


def product_of(name: str) -> str:
    """Return the product, and thereby the image, of a server."""
    steps = (plans.SETUP, plans.LEDGERS_SETUP, plans.SECOND_SETUP)
    return "PULSAR" if name in steps else _PRODUCT.get(plans.kind_of(name), "PULSAR")


def unavailable_reason() -> str | None:
    """Return the reason why containers cannot be started here; None if a container engine answers."""
    try:
        docker: Any = importlib.import_module("docker")
        importlib.import_module("testcontainers.core.container")
    except ImportError as error:
        return f"{error.name} is not installed"
    try:
        docker.from_env(timeout=_PING_LIMIT).ping()
    except (docker.errors.DockerException, OSError) as error:
        return f"no container engine answers: {error}"
    return None


def shell_command(plan: ServerPlan, product: str, log: Path) -> str:
    """Return the plan's command for an image's shell: its programs and jars, and output to the stack's log."""
    program = "oxia" if product == "OXIA" else "java"
    # Archives of classes fit the machine's own Java only.
    arguments = [word for word in plan.command[1:] if not word.startswith("-XX:SharedArchiveFile=")]
    words = [program, *map(shlex.quote, arguments)]
    if product in _CLASSPATH:
        words[words.index("-cp") + 1] = _CLASSPATH[product]
    return f"exec {' '.join(words)} >> {shlex.quote(str(log))} 2>&1"


def security_folders(spec: StackSpec) -> frozenset[Path]:
    """Return the folders of the files that servers need for TLS, tokens and logins."""
    securities = (spec.zookeeper_security, spec.oxia_security, spec.pulsar_security)
    fields = (value for security in securities if security for _, value in security)
    return frozenset(value.parent for value in fields if isinstance(value, Path))


class ContainerStack(Stack):
    """A stack whose ZooKeepers, Oxias, bookies and brokers run in containers, which end with this process."""

    def runner(self, name: str, folder: Path, log: Path) -> Runner:
        """Return a container, or a process for Temporal."""
        if name == "temporal":
            return ProcessRunner(name, folder, log, detach=self.detach)
        return ContainerRunner(product_of(name), folder, log, security_folders(self.state.spec))


class ContainerRunner:
    """A server as a container; every start makes a new one on the same folder.

    Args:
        product: decides the image.
        folder: the server's own.
        log: file for what it prints.
        read: further folders that it reads.
    """

    def __init__(self, product: str, folder: Path, log: Path, read: Iterable[Path] = ()) -> None:
        self._product, self._folder, self._log = product, folder, log
        self._read = (DATA, *read)
        self._container: DockerContainer | None = None

    @property
    def pid(self) -> int | None:
        """Process id on the engine's machine while the container runs or is paused."""
        state = self._state()
        return int(state["Pid"]) if state.get("Running") else None

    @property
    def paused(self) -> bool:
        """True if it is frozen."""
        return bool(self._state().get("Paused"))

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        state = self._state()
        return None if state.get("Running", True) else int(state["ExitCode"])

    def start(self, plan: ServerPlan) -> None:
        """Start it; returns when the engine has made it."""
        from testcontainers.core.container import DockerContainer

        self.kill()
        container = DockerContainer(image_of(self._product)).with_kwargs(
            network_mode="host",
            entrypoint=["sh", "-c", shell_command(plan, self._product, self._log)],
            working_dir=str(self._folder),
            user=f"{os.getuid()}:{os.getgid()}",
        )
        container.with_volume_mapping(str(self._folder), str(self._folder), "rw")
        for each in self._read:
            container.with_volume_mapping(str(each), str(each), "ro")
        self._container = container.start()

    def stop(self, limit: float) -> bool:
        """Ask it to end; the engine kills it after `limit` seconds."""
        if self._container:
            if self.paused:
                self.resume()
            self._wrapped().stop(timeout=int(limit))
            self._remove()
        return True

    def kill(self) -> None:
        """End it as a crash would."""
        if self._container:
            if self.pid is not None:
                self._wrapped().kill()
            self._remove()

    def pause(self) -> None:
        """Freeze it."""
        self._wrapped().pause()

    def resume(self) -> None:
        """Continue it."""
        if self.paused:
            self._wrapped().unpause()

    def quit(self) -> None:
        """Ask it to print the stacks of its threads into its log (SIGQUIT); a server in Go ends after that."""
        self._wrapped().kill(signal="SIGQUIT")

    def _remove(self) -> None:
        if self._container:
            self._container.stop(force=True)
            self._container = None

    def _state(self) -> dict[str, Any]:
        if self._container is None:
            return {"Running": False, "ExitCode": 0}
        wrapped = self._wrapped()
        wrapped.reload()
        return wrapped.attrs["State"]

    def _wrapped(self) -> Any:
        assert self._container is not None
        return self._container.get_wrapped_container()
