"""A place where migrations run: Temporal with one worker and an operator, shared by all modules of a session."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.marks import marked
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.planted import SecretWatch, contents, files
from tests.support.lifecycle.worker import WorkerProcess

PLANTED = "planted-0c2f71"
"""A secret that the worker has in its own environment."""
_NAMES = ("blue", "green", "clients", "strangers", "misled")
_SEARCH_SECONDS = 2.0


@dataclass(frozen=True)
class Secrets:
    """Files that the worker's settings name as credentials of clusters, and that tests write.

    Attributes:
        folder: where they lie.
    """

    folder: Path

    def settings(self) -> dict[str, Any]:
        """Return the worker's settings: a token, a certificate authority and the hosts for each name, and secrets."""
        named = {
            f"PULSAR_MIGRATE_CREDENTIALS__{name.upper()}__{field}": str(value)
            for name in _NAMES
            for field, value in (
                ("ADMIN_TOKEN_FILE", self._token(name)),
                ("ADMIN_TLS_CA", self._authority(name)),
                ("HOSTS", "127.0.0.1,localhost"),
            )
        }
        unused = {
            "ADMIN_TOKEN": PLANTED,
            "OXIA_TOKEN": PLANTED,
            "ZOOKEEPER_AUTH": f'["digest:admin:{PLANTED}"]',
            "ZOOKEEPER_SASL_USERNAME": "admin",
            "ZOOKEEPER_SASL_PASSWORD": PLANTED,
            "HOSTS": "127.0.0.1",
        }
        return {
            **named,
            **{f"PULSAR_MIGRATE_CREDENTIALS__UNUSED__{name}": value for name, value in unused.items()},
            "PULSAR_MIGRATE_BROKER_WEBHOOK_TOKEN": PLANTED,
            "PULSAR_MIGRATE_SPARK_CONF": f'{{"spark.hadoop.planted.secret": "{PLANTED}"}}',
        }

    @property
    def marks(self) -> list[str]:
        """The secrets that the worker knows, as text."""
        return [PLANTED, *(token.read_text() for token in self.folder.glob("*.token"))]

    def write(self, name: str, token: str, authority: Path) -> None:
        """Give credentials of a name."""
        assert name in _NAMES, f"the worker's settings do not name {name}"
        self.folder.mkdir(exist_ok=True)
        self._token(name).write_text(token)
        self._authority(name).write_bytes(authority.read_bytes())

    def _token(self, name: str) -> Path:
        return self.folder / f"{name}.token"

    def _authority(self, name: str) -> Path:
        return self.folder / f"{name}.pem"


@dataclass(frozen=True)
class Environment:
    """Worker and operator for migrations of any cluster.

    Attributes:
        stack: holds Temporal alone.
        worker: serves its task queue.
        operator: starts and steers migrations.
        secrets: credentials with names, in the worker's settings.
        temporary: folder for temporary files of the worker and of Spark.
        stop_file: while it exists, no item of a wave starts.
    """

    stack: Stack
    worker: WorkerProcess
    operator: Operator
    secrets: Secrets
    temporary: Path
    stop_file: Path


@pytest.fixture(scope="session")
def environment(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[Environment]:
    """Environment of the migrations; it serves any number of clusters, so that Spark starts only once."""
    folder = tmp_path_factory.mktemp("environment")
    secrets, temporary, stop_file = Secrets(folder / "secrets"), folder / "temporary", folder / "stop"
    temporary.mkdir()
    settings: dict[str, Any] = {
        **secrets.settings(),
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "PULSAR_MIGRATE_STOP_FILE": str(stop_file),
    }
    with (
        Stack(StackSpec(temporal=True), folder / "stack", toolchain) as stack,
        WorkerProcess(stack.temporal_address, folder, **settings) as worker,
        Operator(stack.temporal_address) as operator,
    ):
        # Each migration of the session is also a test of what it leaves where: of each kind, whether it fails or not.
        with SecretWatch(lambda: worker.pids, secrets.marks, [], every=_SEARCH_SECONDS) as programs:
            yield Environment(stack, worker, operator, secrets, temporary, stop_file)
        assert not programs.found
        assert marked(written_texts(worker, operator, temporary), secrets.marks) == []


def written_texts(worker: WorkerProcess, operator: Operator, temporary: Path) -> Generator[str]:
    """Return all texts that a worker has written or shows: histories, log, metrics and temporary files."""
    written = (contents(path) for path in (worker.log, *files(temporary)))
    yield from (text.decode(errors="replace") for text in chain(operator.histories(), written))
    if worker.pids:
        yield httpx.get(f"http://{worker.metrics_address}/metrics", trust_env=False, timeout=30).text
