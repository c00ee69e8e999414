"""Credentials stay with the hosts of their set: an input, or a record in the store, cannot have them sent elsewhere."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from models.lifecycle.input import MigrationInput
from pulsar_devstack.servers.spec import StackSpec
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.stacks import MakeStack
from worker.catalog import KINDS

pytest_plugins = ["tests.support.stacks"]

MARK = "superuser-secret"
TRAP_HOST = "127.0.0.2"
SETTINGS = {
    "HOSTS": "127.0.0.1",
    # So that only the list of hosts protects the secrets.
    "ALLOW_PLAIN": "true",
    "ADMIN_TOKEN": MARK,
    "ZOOKEEPER_AUTH": json.dumps([f"digest:admin:{MARK}"]),
    "OXIA_TOKEN": MARK,
}


class Trap:
    """A server that records what clients send. It answers nothing.

    Attributes:
        received: the first bytes of each connection.
    """

    def __init__(self) -> None:
        self._server = socket.create_server((TRAP_HOST, 0))
        self.received: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True, name="trap").start()

    @property
    def address(self) -> str:
        """Its `host:port`."""
        return f"{TRAP_HOST}:{self._server.getsockname()[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(2)
                    self.received.append(b"connected")
                    self.received.append(connection.recv(1 << 16))


@pytest.fixture
def trap() -> Generator[Trap]:
    """A server on an address of this machine that the settings do not list."""
    opened = Trap()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Temporal, and two ZooKeepers on a listed host."""
    return make_stack(StackSpec(zookeepers=1, second_zookeepers=1, temporal=True))


@pytest.fixture(scope="module")
def operator(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Generator[Operator]:
    """An operator of a worker that has secrets."""
    settings: dict[str, Any] = {f"PULSAR_MIGRATE_{name}": value for name, value in SETTINGS.items()}
    folder = tmp_path_factory.mktemp("worker")
    with WorkerProcess(stack.temporal_address, folder, **settings), Operator(stack.temporal_address) as operator:
        yield operator


def inputs(store: str, other: str, admin: str) -> dict[str, dict[str, Any]]:
    """Return an input of each migration that leads to a store, another one if it needs two, and a broker."""
    cluster = {"metadata_url": store, "admin_urls": [admin]}
    brokers = {
        "service_url_tls": admin.replace("http:", "https:"),
        "broker_service_url_tls": "pulsar+ssl://127.0.0.1:1",
    }
    ledgers = f"zk+hierarchical://{store.removeprefix('zk:')}"
    return {
        "metadata-store": {"source": store, "target": other},
        "bookie-cluster": {
            "metadata_url": store,
            "source": {"name": "a", "metadataServiceUri": f"{ledgers}/a"},
            "target": {"name": "b", "metadataServiceUri": f"{ledgers}/b"},
            "routing": "restart",
        },
        "blue-green": {
            "blue": {**cluster, **brokers},
            "green_cluster": "green",
            "green": {**cluster, "metadata_url": other, "admin_urls": [f"{admin}1"], **brokers},
        },
        "scalable-topic": {**cluster, "topic": "persistent://public/default/orders"},
        "scalable-namespace": {**cluster, "topics": ["public/default/*"]},
        "scalable-operation": {**cluster, "topics": ["topic://public/default/orders"], "operation": "audit"},
    }


def migration(kind: str, fields: dict[str, Any], *, dry_run: bool) -> MigrationInput:
    """Return the input of a migration."""
    return KINDS[kind].input.model_validate({"cluster": "trapped", "dry_run": dry_run, **fields})


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "real"])
@pytest.mark.parametrize("kind", sorted(inputs("zk:a:1", "zk:b:1", "http://c:1")))
def test_an_input_does_not_lead_them_away(operator: Operator, trap: Trap, kind: str, dry_run: bool) -> None:
    """An input with addresses of another host is refused, and not one connection is opened there."""
    fields = inputs(f"zk:{trap.address}/a", f"zk:{trap.address}/b", f"http://{trap.address}")[kind]
    text = outcome(operator, migration(kind, fields, dry_run=dry_run))
    assert f"{TRAP_HOST} is not among the hosts" in text
    assert MARK not in text
    assert trap.received == []


# The others ask the brokers of the input alone, as long as these do not answer.
@pytest.mark.parametrize("kind", ["blue-green", "bookie-cluster", "metadata-store", "scalable-topic"])
def test_a_registration_does_not_lead_them_away(operator: Operator, stack: Stack, trap: Trap, kind: str) -> None:
    """A broker that is registered with another host gets nothing, on a store that all clients may write."""
    path = "/loadbalance/brokers/forged:8080"
    registration = {
        "webServiceUrl": f"http://{trap.address}",
        "webServiceUrlTls": f"https://{trap.address}",
        "pulsarServiceUrl": f"pulsar://{trap.address}",
    }
    forger: Any = KazooClient(stack.zk_url.removeprefix("zk:"))  # its results have no types
    forger.start()
    try:
        forger.create(path, json.dumps(registration).encode(), ephemeral=True, makepath=True)
        fields = inputs(stack.zk_url, stack.second_zk_url, "http://127.0.0.1:1")[kind]
        text = outcome(operator, migration(kind, fields, dry_run=True))
    finally:
        forger.stop()
        forger.close()
    assert f"{TRAP_HOST} is not among the hosts" in text
    assert MARK not in text
    assert trap.received == []


def outcome(operator: Operator, input: MigrationInput) -> str:
    """Return what a migration says at its end: the blockers of a dry run, or the failure of a real one."""
    run = operator.start(input)
    return run.result().summary if input.dry_run else run.failure().message
