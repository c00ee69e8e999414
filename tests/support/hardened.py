"""Two clusters with TLS, logins and authorization on every link, and a worker with credentials for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from clients.pulsar.admin.namespaces import NamespaceAction
from clients.pulsar.admin.tenants import Tenant
from clients.stores import Access
from models.settings import Settings
from pulsar_devstack.hardening import APPLICATION, SUPERUSER, Hardening
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.blue_green.environment import KEPT_TOPICS
from tests.support.lifecycle.commands import run_against
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.planted import SecretWatch
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.packet_capture import PacketCapture, why_not
from tests.support.stacks import MakeStack

BLUE, GREEN = "blue", "green"
ADMINISTRATOR = "administrator"
"""The role that administrates tenants. The worker has credentials of this name, and for an application."""
# The default is 0: brokers never look for topics to move.
_SETTINGS = {"clusterMigrationCheckDurationSeconds": "1", **KEPT_TOPICS}
_BLUE = StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, cluster=BLUE, broker_settings=_SETTINGS)
_GREEN = StackSpec(zookeepers=1, second_zookeepers=1, bookies=1, brokers=1, cluster=GREEN, broker_settings=_SETTINGS)


@dataclass(frozen=True)
class HardenedEnvironment:
    """Clusters, worker and operator.

    Attributes:
        hardening: certificates, passwords and tokens of both clusters.
        blue: has a second cluster of bookies.
        green: has a second ZooKeeper.
        worker: serves migrations of both.
        operator: starts and steers them.
        temporal: address of its server.
        watch: looks for secrets in programs and temporary files of the worker.
        capture: the packets of all links; None where packets cannot be captured.
    """

    hardening: Hardening
    blue: Stack
    green: Stack
    worker: WorkerProcess
    operator: Operator
    temporal: str
    watch: SecretWatch
    capture: PacketCapture | None

    def admin(self, stack: Stack) -> StackAdmin:
        """Return the admin interface of a cluster, as its superuser; a context manager."""
        return StackAdmin(stack.admin_urls[0], access=self.hardening.admin_access())

    @property
    def access(self) -> Access:
        """Access of a worker to stores and bookies."""
        given = {name.lower(): value for name, value in self.hardening.credentials().items()}
        return Access.from_settings(Settings.model_validate(given))

    def client_options(self) -> dict[str, Any]:
        """Return what Pulsar's Python client needs to be an application."""
        return self.hardening.client_access().options()

    def create_namespace(self, stack: Stack, namespace: str) -> None:
        """Create a namespace in a tenant of its own, in which an application may produce and consume."""
        cluster = stack.state.spec.cluster
        with self.admin(stack) as admin:
            tenant = Tenant(admin_roles=(ADMINISTRATOR,), allowed_clusters=(cluster,))
            admin.tenants.create(namespace.partition("/")[0], tenant)
            admin.namespaces.create(namespace, {"replication_clusters": [cluster], "bundles": {"numBundles": 1}})
            admin.namespaces.grant(namespace, APPLICATION, [NamespaceAction.PRODUCE, NamespaceAction.CONSUME])

    def assert_equal_sides(self, workflow_id: str) -> None:
        """Verify a migration by request, whose readers are not those of its copy."""
        done = run_against(self.temporal, "verify", workflow_id, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        certificate = json.loads(done.stdout)
        assert certificate["equal"] == certificate["compared"] > 0

    def assert_no_secret_is_seen(self) -> None:
        """Check that no secret is in programs, files, log and metrics of the worker, in a history or in a packet."""
        assert not self.watch.found
        if self.capture:
            assert not self.capture.find([secret.encode() for secret in secrets(self.hardening)])
        metrics = httpx.get(f"http://{self.worker.metrics_address}/metrics", trust_env=False, timeout=30).content
        for text in (self.worker.log.read_bytes(), metrics, *self.operator.histories()):
            assert text
            assert not self.watch.holds(text)


@contextmanager
def hardened_environment(make_stack: MakeStack, tools: Toolchain, folder: Path) -> Generator[HardenedEnvironment]:
    """Start everything, and end Temporal and the worker with the context."""
    hardening = Hardening.make(tools, folder / "secrets")
    (temporary := folder / "temporary").mkdir()
    sets = {"": SUPERUSER, **{f"CREDENTIALS__{role.upper()}__": role for role in (ADMINISTRATOR, APPLICATION)}}
    settings: dict[str, Any] = {
        f"PULSAR_MIGRATE_{prefix}{name}": value
        for prefix, role in sets.items()
        for name, value in hardening.credentials(role).items()
    }
    with (
        ThreadPoolExecutor(2) as pool,
        Stack(StackSpec(temporal=True), folder / "temporal", tools) as temporal,
        WorkerProcess(
            temporal.temporal_address, folder, TMPDIR=str(temporary), SPARK_LOCAL_DIRS=str(temporary), **settings
        ) as worker,
        Operator(temporal.temporal_address) as operator,
        SecretWatch(lambda: worker.pids, secrets(hardening), [temporary]) as watch,
        nullcontext() if why_not() else PacketCapture(folder / "packets") as capture,
    ):
        blue, green = pool.map(make_stack, map(hardening.harden, (_BLUE, _GREEN)))
        address = temporal.temporal_address
        yield HardenedEnvironment(hardening, blue, green, worker, operator, address, watch, capture)


def secrets(hardening: Hardening) -> list[str]:
    """Return passwords, tokens and the key of the tokens, as text."""
    texts = [file.read_text() for pattern in ("*.password", "*.token") for file in hardening.folder.glob(pattern)]
    return [*texts, base64.b64encode((hardening.folder / "token.secret").read_bytes()).decode()]
