"""The chart and the manifests on a real API server: it accepts all fields, and grants what is meant and no more."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import CHART, NAMESPACE, PLACEHOLDERS
from tests.environments import ROOT
from tests.kubernetes.api_server import ApiServer, api_server
from tests.support.helm import by_name, require_helm
from tests.support.waiting import wait_for, wait_until_equal

_BROKERS = "pulsar"
_RIGHTS_LIMIT = 30.0
_ALL = {
    "payloadKeys": {"secret": "keys"},
    "monitoring": {"dashboard": {"enabled": True}},
    "worker": {
        "versioning": {
            "deploymentName": "pulsar-migrate",
            "buildId": "0.2.0",
            "earlierBuilds": [{"buildId": "0.1.0", "repository": "registry.example/pulsar-migrate", "tag": "0.1.0"}],
        },
        "tolerations": [{"key": "migrations", "operator": "Exists", "effect": "NoSchedule"}],
        "extraVolumes": [{"name": "spill", "emptyDir": {"sizeLimit": "1Gi"}}],
        "extraVolumeMounts": [{"name": "spill", "mountPath": "/spill"}],
    },
    "brokerCommands": {
        "enabled": True,
        "namespace": _BROKERS,
        "statefulSets": ["pulsar-broker"],
        "apiServer": {"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}], "port": 443},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ApiServer]:
    """Start a server with the namespaces, of which ours admits only pods of the strictest standard."""
    with api_server(tmp_path_factory.mktemp("kubernetes")) as started:
        started.add_custom_resources()
        for name, labels in ((NAMESPACE, {"pod-security.kubernetes.io/enforce": "restricted"}), (_BROKERS, {})):
            metadata = {"name": name, "labels": labels}
            started.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield started


@pytest.fixture(scope="module")
def release(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> ApiServer:
    """Install the chart with everything that it can have."""
    values = tmp_path_factory.mktemp("values") / "all.yaml"
    values.write_text(yaml.safe_dump(_ALL))
    install(server, "--values", str(PLACEHOLDERS), "--values", str(values))
    return server


def install(server: ApiServer, *options: str) -> None:
    """Run `helm upgrade --install` without waiting for pods, which no node runs."""
    command = [require_helm(), "--kubeconfig", str(server.kubeconfig), "upgrade", "--install", "--namespace", NAMESPACE]
    done = subprocess.run(
        [*command, "pulsar-migrate", str(CHART), *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a deployment would start."""
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": deployment["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/kubernetes").iterdir()), ids=lambda file: file.stem)
def test_each_manifest_is_accepted(file: Path, server: ApiServer) -> None:
    """The server has each field of each object, finds each value valid, and warns of nothing."""
    answers = {key: server.check(item, NAMESPACE) for key, item in by_name(file.read_text()).items()}
    assert answers
    assert {key: answer for key, answer in answers.items() if answer != ("", [])} == {}


def test_an_unknown_field_is_refused(server: ApiServer) -> None:
    """The check of manifests would notice a misspelled field."""
    item = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "automountToken": False}
    assert "field not declared in schema" in server.check(item, NAMESPACE).error


def test_the_chart_installs_all_its_parts(release: ApiServer) -> None:
    """`helm upgrade --install` stores two builds of workers, gateway, page, rights and monitoring."""
    deployments = release.list("Deployment", NAMESPACE)
    names = {"pulsar-migrate-gateway", "pulsar-migrate-page"}
    assert set(deployments) == names | {f"pulsar-migrate-worker-0-{build}-0" for build in (1, 2)}
    assert set(release.list("PodMonitor", NAMESPACE)) == {"pulsar-migrate", "pulsar-migrate-page"}
    assert set(release.list("PrometheusRule", NAMESPACE)) == {"pulsar-migrate"}
    assert "pulsar-migrate-dashboard" in release.list("ConfigMap", NAMESPACE)


def test_its_pods_meet_the_restricted_standard(release: ApiServer) -> None:
    """Each pod is admitted where `pod-security.kubernetes.io/enforce` is `restricted`; a pod with a root is not."""
    pods = {name: pod_of(each) for name, each in release.list("Deployment", NAMESPACE).items()}
    assert {name: release.check(pod, NAMESPACE).error for name, pod in pods.items()} == dict.fromkeys(pods, "")
    [pod, *_] = pods.values()
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    assert "violates PodSecurity" in release.check(pod, NAMESPACE).error


def test_a_worker_may_restart_the_named_brokers_only(release: ApiServer) -> None:
    """The role allows what the documented commands of kubectl need, for one set of one namespace, to workers only."""
    worker = f"{NAMESPACE}:pulsar-migrate-worker"
    for verb, resource in (("get", "statefulsets"), ("patch", "statefulsets"), ("patch", "statefulsets/scale")):
        # The server learns of a new role a moment after it has stored it.
        allowed = partial(release.may, worker, verb, resource, _BROKERS, "pulsar-broker")
        wait_for(f"workers may {verb} {resource}", allowed, _RIGHTS_LIMIT)
    assert not release.may(worker, "patch", "statefulsets", _BROKERS, "pulsar-bookie")
    assert not release.may(worker, "patch", "statefulsets", "default", "pulsar-broker")
    assert not release.may(worker, "delete", "statefulsets", _BROKERS, "pulsar-broker")
    assert not release.may(f"{NAMESPACE}:pulsar-migrate-page", "get", "statefulsets", _BROKERS, "pulsar-broker")


def test_an_upgrade_removes_what_is_switched_off(release: ApiServer) -> None:
    """Without the switch the rights of workers are gone, and earlier builds end when they are not listed any more."""
    install(release, "--values", str(PLACEHOLDERS))
    worker = f"{NAMESPACE}:pulsar-migrate-worker"
    # The server decides by a removed role for a moment.
    allowed = partial(release.may, worker, "patch", "statefulsets", _BROKERS, "pulsar-broker")
    wait_until_equal("whether workers may restart brokers", allowed, expected=False, limit=_RIGHTS_LIMIT)
    workers = [name for name in release.list("Deployment", NAMESPACE) if "worker" in name]
    assert workers == ["pulsar-migrate-worker"]
