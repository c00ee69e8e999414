"""The image, run as the manifest for Kubernetes says: its limits hold, and a worker in it migrates a cluster."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.hardening import SUPERUSER, Hardening
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.runner import Traffic
from tests.image.conftest import BuiltImage
from tests.image.pod import Pod, PodContainer
from tests.sealed.network import OUTSIDE, packets_to_outside
from tests.support.lifecycle.operator import Operator
from tests.support.stacks import MakeStack

CLUSTER = "image"
_SECRET = "/etc/pulsar-migrate"
_TOPIC = "persistent://public/default/topic"
_LIMITS = Path(__file__).with_name("limits.py")


@dataclass(frozen=True)
class Cluster:
    """A cluster with TLS, logins and authorization, Temporal, and the worker's pod.

    Attributes:
        stack: the cluster.
        hardening: its certificates, passwords and tokens.
        pod: has the credentials in its Secret.
        operator: starts migrations.
    """

    stack: Stack
    hardening: Hardening
    pod: Pod
    operator: Operator


@pytest.fixture(scope="module")
def cluster(
    image: BuiltImage, make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Cluster]:
    """Start servers next to the engine, in the sealed network."""
    hardening = Hardening.make(toolchain, tmp_path_factory.mktemp("hardening") / "secrets")
    spec = StackSpec(zookeepers=1, second_zookeepers=1, bookies=1, brokers=1, temporal=True, cluster=CLUSTER)
    stack = make_stack(hardening.harden(spec))
    with Operator(stack.temporal_address) as operator:
        yield Cluster(stack, hardening, _pod(stack, hardening, tmp_path_factory.mktemp("files")), operator)


def test_the_limits_of_the_manifest_hold(cluster: Cluster) -> None:
    """The container has no capability, writes to /tmp only, reads its Secret, and reaches no other address."""
    done = cluster.pod.run("-c", _LIMITS.read_text(), _SECRET, OUTSIDE, entrypoint="python")
    assert done.returncode == 0, done.stderr
    limits: dict[str, Any] = json.loads(done.stdout)
    assert (limits["user"], limits["capabilities"], limits["no_new_privileges"]) == (10001, 0, "1")
    assert 10001 in limits["groups"]
    assert limits["seccomp"] == "2", "a filter"
    assert limits["writable"].pop("/tmp") is None
    assert set(limits["writable"].values()) == {"Read-only file system"}
    assert limits["secret"] is None
    assert limits["outside"] == "timed out"


def test_the_version_is_printed(cluster: Cluster) -> None:
    """`pulsar-migrate --version` prints the version of the wheel, with a read-only root."""
    done = cluster.pod.run("--version")
    assert (done.stdout, done.returncode) == ("pulsar-migrate 0.2.0\n", 0), done.stderr


def test_doctor_finds_no_problem(cluster: Cluster) -> None:
    """`doctor` finds Java, PySpark, Temporal and the Secret's files in a container like the worker's."""
    before = packets_to_outside()
    done = cluster.pod.run("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert packets_to_outside() == before


def test_the_worker_migrates_a_cluster(cluster: Cluster) -> None:
    """A live metadata migration is done by a worker in the container, which sends no packet to other addresses."""
    stack, before = cluster.stack, packets_to_outside()
    input = MetadataStoreInput.model_validate(
        {
            "cluster": CLUSTER,
            "source": stack.zk_url,
            "target": f"{stack.second_zk_url}/new",
            "validation_window": "PT0S",
            "hold_before_cutover": False,
        }
    )
    options = cluster.hardening.client_access(SUPERUSER).options()
    with (
        PodContainer(cluster.pod) as worker,
        Traffic.here(stack.broker_url, [_TOPIC], options=options) as traffic,
        StackAdmin(stack.admin_urls[0], access=cluster.hardening.admin_access()) as admin,
    ):
        worker.wait_ready()
        traffic.wait_for_more(10)
        report = cluster.operator.run(input)
        assert report.outcome is Outcome.DONE, worker.log
        admin.create_topic("new")
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
        assert httpx.get("http://127.0.0.1:9464/metrics", trust_env=False, timeout=30).status_code == 200
        assert worker.execute(["pulsar-migrate", "doctor"]).returncode == 0
        assert worker.stop() == 0
        log = worker.log
    assert "Traceback" not in log
    assert packets_to_outside() == before


def _pod(stack: Stack, hardening: Hardening, files: Path) -> Pod:
    """Return the worker's pod with the credentials of its settings as files of the Secret."""
    variables: dict[str, str | None] = {"TEMPORAL_ADDRESS": stack.temporal_address, "TEMPORAL_TLS": "false"}
    variables["TEMPORAL_TLS_SERVER_CA_CERT_PATH"] = None
    for name, value in hardening.credentials().items():
        path = Path(value)
        if path.is_absolute():
            (files / path.name).write_bytes(path.read_bytes())
        variables[f"PULSAR_MIGRATE_{name}"] = f"{_SECRET}/{path.name}" if path.is_absolute() else value
    return Pod.of("worker", files, variables)
