"""The inside of a sealed network: what runs there, and what a command finds in its environment.

`DOCKER_HOST` names the engine, `PIP_INDEX_URL` the index, `SEALED_REGISTRY` the registry, and `SEALED_BASE` the base
image with its digest. All of them listen on loopback. There is a route to other addresses, which ends at once: so the
packets that programs send there can be counted (`packets_to_outside`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.sealed.index import serve_index
from tests.sealed.products import Products
from tests.support.waiting import wait_for

OUTSIDE = "203.0.113.1"
"""An address that is reserved for documentation: the route to it leads to the end that is counted."""

_WAY_OUT, _DEAD_END = "outside", "dead-end"
_REGISTRY = "127.0.0.1:5000"
_START_LIMIT = 60.0
_END_LIMIT = 20.0


def packets_to_outside() -> int:
    """Return how many packets left for other addresses than loopback, since the network exists."""
    # Eight numbers of what was received, then those of what was sent.
    [numbers] = re.findall(rf"^\s*{_WAY_OUT}:(.*)$", Path("/proc/self/net/dev").read_text(), re.MULTILINE)
    return int(numbers.split()[9])


def serve(products: Products, folder: Path, command: Sequence[str]) -> int:
    """Run a command next to engine, registry and index; return its exit code.

    Args:
        products: what is served.
        folder: for the data of engine and registry.
        command: program and arguments.
    """
    _make_network()
    # Settings of pip could name another source.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["PATH"] = products.path
    with ExitStack() as ends:
        address = ends.enter_context(serve_index(products.packages))
        ends.enter_context(_running(_engine(products, folder), environment, folder / "engine.log"))
        ends.enter_context(_running(_registry(folder), environment, folder / "registry.log"))
        environment |= {
            "DOCKER_HOST": f"unix://{folder}/docker.sock",
            "DOCKER_BUILDKIT": "1",
            "PIP_INDEX_URL": f"{address}/simple",
            "SEALED_REGISTRY": _REGISTRY,
            # Its image cannot be fetched here, and all containers end with the network.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }
        environment["SEALED_BASE"] = _push_base(products, environment)
        return subprocess.run(command, env=environment, check=False).returncode


def _make_network() -> None:
    pair = ["link", "add", _WAY_OUT, "type", "veth", "peer", "name", _DEAD_END]
    routes = [["addr", "add", "192.0.2.1/24", "dev", _WAY_OUT], ["route", "add", "default", "dev", _WAY_OUT]]
    links = [
        ["link", "set", *words]
        for words in (["lo", "up"], [_WAY_OUT, "arp", "off"], [_DEAD_END, "up"], [_WAY_OUT, "up"])
    ]
    subprocess.run(["ip", *pair], check=True)
    for end in (_WAY_OUT, _DEAD_END):
        # With IPv6 the kernel itself sends packets.
        Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
    for arguments in (*links, *routes):
        subprocess.run(["ip", *arguments], check=True)


def _engine(products: Products, folder: Path) -> list[str]:
    own_folders = [
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
        "--pidfile",
        f"{folder}/engine.pid",
    ]
    # Containers use the sealed network itself.
    network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    groups = ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{folder.name}"]
    libraries = ":".join(map(str, products.engine.glob("**/lib/*-linux-gnu")))
    program = ["env", f"LD_LIBRARY_PATH={libraries}", "dockerd", "--host", f"unix://{folder}/docker.sock"]
    return [*program, *own_folders, *network, *groups, "--storage-driver=overlay2"]


def _registry(folder: Path) -> list[str]:
    settings = folder / "registry.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}"
    settings.write_text(f'version: 0.1\n{storage}\nhttp: {{addr: "{_REGISTRY}"}}\n')
    return ["docker-registry", "serve", str(settings)]


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Generator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_END_LIMIT)


def _push_base(products: Products, environment: dict[str, str]) -> str:
    """Push the base image to the registry; return its name with its digest, and forget it in the engine."""

    def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", *arguments], env=environment, capture_output=True, text=True, check=False)

    wait_for("the engine answers", lambda: docker("version").returncode == 0, _START_LIMIT)
    name = f"{_REGISTRY}/base"
    docker("import", str(products.base), name).check_returncode()
    wait_for("the registry takes the base image", lambda: docker("push", name).returncode == 0, _START_LIMIT)
    digest = docker("inspect", "--format", "{{index .RepoDigests 0}}", name).stdout.strip()
    docker("rmi", name).check_returncode()
    return digest
