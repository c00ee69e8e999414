"""The manifests for Kubernetes keep what the pods may do to what they need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from gateway.settings import GatewaySettings
from models.settings import Settings
from page.settings import PageSettings
from tests.environments import ROOT

_FOLDER = ROOT / "deploy/kubernetes"
_PODS = ("worker", "gateway", "page")
_DOUBLED = ("worker", "gateway")


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


@pytest.mark.parametrize("name", _PODS)
def test_secrets_are_files(name: str) -> None:
    """No environment variable gets a secret; the Secret is mounted, and each file that a setting names is in it."""
    pod, container = pod_of(name)
    assert "envFrom" not in container
    assert all(set(variable) == {"name", "value"} for variable in container["env"])
    [mounted] = [volume["name"] for volume in pod["volumes"] if "secret" in volume]
    [folder] = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == mounted]
    variables = {each["name"]: each["value"] for each in container["env"]}
    variables.pop("PULSAR_MIGRATE_STOP_FILE", None)  # holds a reason, in a ConfigMap
    files = [Path(value) for value in variables.values() if value.startswith("/")]
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


@pytest.mark.parametrize("name", ["gateway", "page"])
def test_servers_reach_temporal_only(name: str) -> None:
    """A stolen gateway or page has no way to brokers and stores: besides DNS it may connect to Temporal."""
    egress = manifests(name)["NetworkPolicy"]["spec"]["egress"]
    assert [sorted({port["port"] for port in rule["ports"]}) for rule in egress] == [[53], [7233]]


@pytest.mark.parametrize("name", _PODS)
def test_links_are_encrypted_and_the_image_is_fixed(name: str) -> None:
    """Examples have TLS for Temporal and brokers, and an image by digest."""
    _, container = pod_of(name)
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["TEMPORAL_TLS"] == "true"
    assert not any("http://" in value for value in variables.values())
    assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"])


@pytest.mark.parametrize("name", _DOUBLED)
def test_one_of_two_pods_runs_when_nodes_are_drained(name: str) -> None:
    """A drain ends one pod after the other, and the pods are on different nodes if there are some."""
    objects = manifests(name)
    deployment, budget = objects["Deployment"]["spec"], objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"] == deployment["selector"]
    assert budget["maxUnavailable"] < deployment["replicas"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"] for each in spread] == [deployment["selector"]]


def test_spark_runs_as_many_tasks_as_the_limit_has_cores() -> None:
    """With `local[*]` it would run one for each core of the node, and their memory would exceed the limit."""
    _, container = pod_of("worker")
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["PULSAR_MIGRATE_SPARK_MASTER"] == f"local[{container['resources']['limits']['cpu']}]"


def test_the_page_needs_tokens() -> None:
    """The page is served with TLS and tokens, to namespaces with a label, and by one pod."""
    _, container = pod_of("page")
    names = {variable["name"].removeprefix("PULSAR_MIGRATE_PAGE_") for variable in container["env"]}
    assert {"TLS_CERTIFICATE", "TLS_KEY", "TOKENS_FILE", "HOSTS"} < names
    assert not names & {"ALLOW_PLAIN", "ALLOW_ANONYMOUS"}
    assert manifests("page")["Deployment"]["spec"]["replicas"] == 1, "a second one would report each migration twice"


@pytest.mark.parametrize(
    ("name", "settings"), [("worker", Settings), ("gateway", GatewaySettings), ("page", PageSettings)]
)
def test_settings_exist(name: str, settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable of ours is a setting that the process reads, and the values are valid."""
    _, container = pod_of(name)
    variables = {each["name"]: each["value"] for each in container["env"] if each["name"].startswith("PULSAR_MIGRATE_")}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    own = set(variables) - {"PULSAR_MIGRATE_LOG", "PULSAR_MIGRATE_TASK_QUEUE"}
    given = settings()
    prefix = settings.model_config.get("env_prefix", "")
    assert {prefix + field.upper() for field in given.model_fields_set if field != "task_queue"} == own


def test_custom_resources_are_apart() -> None:
    """Worker and gateway apply on a cluster without the Prometheus operator."""
    versions = {each["apiVersion"] for name in _PODS for each in manifests(name).values()}
    assert versions == {"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"}
    assert set(manifests("podmonitor")) == {"PodMonitor"}
