"""The manifests for Kubernetes keep what the pods may do to what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.environments import ROOT

_FOLDER = ROOT / "deploy/kubernetes"
_PODS = ("worker", "gateway")


def manifests(name: str) -> dict[str, Any]:
    """Return the objects of a manifest by their kinds."""
    objects = list(yaml.safe_load_all((_FOLDER / f"{name}.yaml").read_text()))
    return {each["kind"]: each for each in objects}


def pod_of(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the specification of the pods of a deployment, and of their container."""
    pod = manifests(name)["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    return pod, container


@pytest.mark.parametrize("name", _PODS)
def test_pods_have_no_rights_in_kubernetes(name: str) -> None:
    """Each deployment has a service account of its own, whose token is not mounted."""
    pod, _ = pod_of(name)
    account = manifests(name)["ServiceAccount"]
    assert account["metadata"]["name"] == pod["serviceAccountName"] == f"pulsar-migrate-{name}"
    assert account["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", _PODS)
def test_pods_are_confined(name: str) -> None:
    """No root, no escalation, no capability, no writable root, a seccomp profile, and limits of all they can fill."""
    pod, container = pod_of(name)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
    labels = manifests(name)["Deployment"]["spec"]["selector"]["matchLabels"]
    assert [spread["labelSelector"]["matchLabels"] for spread in pod["topologySpreadConstraints"]] == [labels]


@pytest.mark.parametrize("name", _PODS)
def test_secrets_are_files(name: str) -> None:
    """No environment variable gets a secret; the Secret is mounted, and each file that a setting names is in it."""
    pod, container = pod_of(name)
    assert "envFrom" not in container
    assert all(set(variable) == {"name", "value"} for variable in container["env"])
    [mounted] = [volume["name"] for volume in pod["volumes"] if "secret" in volume]
    [folder] = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == mounted]
    files = [Path(each["value"]) for each in container["env"] if each["value"].startswith("/")]
    assert files
    assert {str(file.parent) for file in files} == {folder}


@pytest.mark.parametrize("name", _PODS)
def test_the_network_is_closed_but_for_a_list(name: str) -> None:
    """Both directions are denied by default; each exception names its other side and its ports."""
    policy = manifests(name)["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == manifests(name)["Deployment"]["spec"]["selector"]["matchLabels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])


def test_a_gateway_reaches_temporal_only() -> None:
    """A stolen gateway has no way to brokers and stores: besides DNS it may connect to Temporal."""
    egress = manifests("gateway")["NetworkPolicy"]["spec"]["egress"]
    assert [sorted({port["port"] for port in rule["ports"]}) for rule in egress] == [[53], [7233]]


@pytest.mark.parametrize("name", _PODS)
def test_links_are_encrypted_and_the_image_is_fixed(name: str) -> None:
    """Examples have TLS for Temporal and brokers, and an image by digest."""
    _, container = pod_of(name)
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["TEMPORAL_TLS"] == "true"
    assert not any("http://" in value for value in variables.values())
    assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"])


def test_a_gateway_stays_up_when_nodes_are_drained() -> None:
    """The gateway has a disruption budget; its pods are those of the deployment."""
    objects = manifests("gateway")
    budget = objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"] == objects["Deployment"]["spec"]["selector"]
    assert budget["minAvailable"] < objects["Deployment"]["spec"]["replicas"]


def test_custom_resources_are_apart() -> None:
    """Worker and gateway apply on a cluster without the Prometheus operator."""
    versions = {each["apiVersion"] for name in _PODS for each in manifests(name).values()}
    assert versions == {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"}
    assert set(manifests("podmonitor")) == {"PodMonitor"}


@pytest.mark.parametrize("name", _PODS)
def test_manifests_fit_the_schemas_of_kubernetes(name: str) -> None:
    """Each object has only fields that Kubernetes has, where the validator is installed."""
    program = shutil.which("kubernetes-validate")
    if program is None:
        pytest.skip("the schemas take 108 MB, and are not a dependency; to run this: pip install kubernetes-validate")
    checked = subprocess.run(
        [program, "--strict", str(_FOLDER / f"{name}.yaml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
