"""The Helm chart: what its values make, and which values it refuses."""

from __future__ import annotations

import copy
import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from deploy.manifests import CHART, KUBERNETES, PLACEHOLDERS, manifests
from models.credentials import Credentials
from models.settings import Settings
from tests.environments import ROOT
from tests.support.helm import Objects, render, require_helm, try_render

PARTS = ("worker", "gateway", "page")
VALUES: dict[str, Any] = yaml.safe_load(PLACEHOLDERS.read_text())
_DIGEST = "sha256:" + "1" * 64
_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"image": {}}, "/image/repository"),
    ({"image.digest": "", "image.tag": ""}, "/image/digest"),
    ({"image.digest": "latest"}, "does not match pattern"),
    ({"temporal": {}}, "/temporal/address"),
    ({"worker.replica": 3}, "additional properties 'replica' not allowed"),
    ({"worker.memoryLimit": "4G"}, "/worker/memoryLimit"),
    ({"worker.files": {"PULSAR_MIGRATE_ADMIN_TOKEN_FILE": "/etc/token"}}, "does not match pattern"),
    ({"worker.versioning": {"buildId": "0.2.0"}}, "/worker/versioning/deploymentName"),
    (
        {"worker.versioning": {"earlierBuilds": [{"buildId": "1", "repository": "r", "tag": "1"}]}},
        "/worker/versioning",
    ),
    ({"worker.versioning": {"deploymentName": "p", "buildId": "0.2.0-"}}, "/worker/versioning/buildId"),
    (
        {
            "worker.versioning": {
                "deploymentName": "p",
                "buildId": "0.2.0",
                "earlierBuilds": [{"buildId": "0-2-0", "repository": "r", "tag": "1"}],
            }
        },
        "the build 0-2-0 is there twice",
    ),
    ({"page.env": {"PULSAR_MIGRATE_PAGE_PORT": 9000}}, "invalid propertyName 'PULSAR_MIGRATE_PAGE_PORT'"),
    ({"worker.env": {"PULSAR_MIGRATE_TASK_QUEUE": "other"}}, "invalid propertyName 'PULSAR_MIGRATE_TASK_QUEUE'"),
    ({"worker.env": {"PULSAR_MIGRATE_HOOKS": {"pager": {"secret": "x"}}}}, "invalid propertyName 'secret'"),
    ({"worker.env": {"PULSAR_MIGRATE_HOOKS": '{"pager": {"secret": "x"}}'}}, "/worker/env/PULSAR_MIGRATE_HOOKS"),
    (
        {"worker.env": {"PULSAR_MIGRATE_CREDENTIALS__GREEN": {"admin_token": "x"}}},
        "invalid propertyName 'admin_token'",
    ),
    (
        {"worker.env": {"PULSAR_MIGRATE_SPARK_CONF": {"spark.authenticate.secret": "x"}}},
        "invalid propertyName 'spark.authenticate.secret'",
    ),
    ({"temporal.env": {"TEMPORAL_GRPC_META_AUTHORIZATION": "x"}}, "TEMPORAL_GRPC_META_AUTHORIZATION"),
    ({"worker.env": {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=x"}}, "OTEL_EXPORTER_OTLP_HEADERS"),
    ({"gateway.env": {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=x"}}, "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    ({"gateway.cluster": ""}, "/gateway/cluster"),
    ({"networkPolicy.viewers": []}, "/networkPolicy/viewers"),
    ({"networkPolicy.pulsar.to": [{}]}, "/networkPolicy/pulsar/to/0"),
    ({"brokerCommands.enabled": True}, "/brokerCommands/statefulSets"),
]


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the placeholders with other values, each by its path."""
    values = copy.deepcopy(VALUES)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return values


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the specifications of pods, by the names of their deployments."""
    return {name: each["spec"]["template"]["spec"] for (kind, name), each in objects.items() if kind == "Deployment"}


def variables(pod: dict[str, Any]) -> dict[str, str]:
    """Return the environment of the only container of a pod."""
    [container] = pod["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_manifests_are_those_of_the_chart() -> None:
    """Each file in deploy/kubernetes is what the chart makes; else run `make manifests`."""
    require_helm()
    assert {file: file.read_text() for file in manifests()} == manifests()
    assert set(manifests()) == set((ROOT / "deploy/kubernetes").iterdir())


def test_the_chart_has_the_version_of_the_product() -> None:
    """The chart is released with the product."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_helm_finds_no_fault() -> None:
    """`helm lint --strict` passes."""
    command = [
        require_helm(),
        "lint",
        "--strict",
        "--kube-version",
        KUBERNETES,
        "--values",
        str(PLACEHOLDERS),
        str(CHART),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_secret_setting_is_refused_in_a_variable(tmp_path: Path) -> None:
    """A setting that holds a secret must be a file, for the common credentials and for those with names."""
    fields = [(name, Settings.model_fields[name].annotation) for name in Settings.model_fields]
    secrets = [
        f"PULSAR_MIGRATE_{name.upper()}" for name, kind in fields if "SecretStr" in str(kind) or kind is SecretStr
    ]
    assert len(secrets) > 4
    named = [f"PULSAR_MIGRATE_CREDENTIALS__GREEN__{secret.removeprefix('PULSAR_MIGRATE_')}" for secret in secrets]
    names = [*secrets, *named, "PULSAR_MIGRATE_CREDENTIALS", "TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA"]
    done = try_render(changed({"worker.env": dict.fromkeys(names, "x")}), tmp_path)
    assert [name for name in names if f"invalid propertyName '{name}'" not in done.stderr] == []
    assert any(field.endswith("_password_file") for field in Credentials.model_fields), (
        "the names of files are accepted"
    )


@pytest.mark.parametrize(("changes", "reason"), _WRONG)
def test_wrong_values_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """A value that is missing, misspelled or would open something is named before anything is installed."""
    done = try_render(changed(changes), tmp_path)
    assert done.returncode != 0
    assert reason in done.stderr


def test_every_part_reads_the_keys_of_payloads(tmp_path: Path) -> None:
    """With encryption workers, gateway and page have the file of keys; without it they have no such variable."""
    objects = render(changed({"payloadKeys": {"secret": "keys", "readPlain": True}}), tmp_path)
    for pod in pods(objects).values():
        [container] = pod["containers"]
        assert {"name": "payload-keys", "mountPath": "/etc/payload-keys", "readOnly": True} in container["volumeMounts"]
        assert {"name": "payload-keys", "secret": {"secretName": "keys", "defaultMode": 0o440}} in pod["volumes"]
        assert variables(pod)["PULSAR_MIGRATE_PAYLOAD_KEYS_FILE"] == "/etc/payload-keys/payload-keys"
        assert variables(pod)["PULSAR_MIGRATE_PAYLOAD_READ_PLAIN"] == "true"
    assert not any("PAYLOAD" in name for pod in pods(render(VALUES, tmp_path)).values() for name in variables(pod))


def test_builds_run_side_by_side(tmp_path: Path) -> None:
    """Each build has its own workers, image, name and disruption budget, and one network policy covers all."""
    earlier = {"buildId": "0.1.0+a", "repository": "registry.example/old", "digest": _DIGEST}
    versioning = {"deploymentName": "pulsar-migrate", "buildId": "0.2.0", "earlierBuilds": [earlier]}
    objects = render(changed({"worker.versioning": versioning}), tmp_path)
    workers = {name: pod for name, pod in pods(objects).items() if "worker" in name}
    assert set(workers) == {"pulsar-migrate-worker-0-2-0", "pulsar-migrate-worker-0-1-0-a"}
    builds = {name: variables(pod)["PULSAR_MIGRATE_BUILD_ID"] for name, pod in workers.items()}
    assert sorted(builds.values()) == ["0.1.0+a", "0.2.0"]
    assert workers["pulsar-migrate-worker-0-1-0-a"]["containers"][0]["image"] == f"registry.example/old@{_DIGEST}"
    selectors = [objects["Deployment", name]["spec"]["selector"]["matchLabels"] for name in workers]
    assert selectors[0] != selectors[1]
    assert [objects["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] for name in workers] == selectors
    policy = objects["NetworkPolicy", "pulsar-migrate-worker"]["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() < selector.items() for selector in selectors)


def test_only_broker_commands_get_rights(tmp_path: Path) -> None:
    """The switch gives workers a token, a role for named sets, and a way to the API server; other parts get none."""
    server = {"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}], "port": 443}
    commands = {"enabled": True, "namespace": "pulsar", "statefulSets": ["pulsar-broker"], "apiServer": server}
    objects = render(changed({"brokerCommands": commands}), tmp_path)
    tokens = {name: pod["automountServiceAccountToken"] for name, pod in pods(objects).items()}
    assert tokens == {f"pulsar-migrate-{name}": name == "worker" for name in PARTS}
    role = objects["Role", "pulsar-migrate-brokers"]
    assert role["metadata"]["namespace"] == "pulsar"
    assert [rule["resourceNames"] for rule in role["rules"]] == [["pulsar-broker"]] * 2
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "patch", "update"}
    egress = objects["NetworkPolicy", "pulsar-migrate-worker"]["spec"]["egress"]
    assert {"to": server["to"], "ports": [{"protocol": "TCP", "port": 443}]} in egress
    assert not {kind for kind, _ in render(VALUES, tmp_path)} & {"Role", "RoleBinding", "ClusterRole"}


def test_probes_fit_the_tls_of_the_server(tmp_path: Path) -> None:
    """Probes use HTTPS; a server that needs certificates of clients is only connected to, and a plain one gets HTTP."""
    prefix = "PULSAR_MIGRATE_PAGE_TLS"
    tls = {f"{prefix}_CERTIFICATE": "tls.crt", f"{prefix}_KEY": "tls.key", f"{prefix}_CLIENT_CA": "ca.crt"}
    [container] = pods(render(changed({"page.files": tls}), tmp_path))["pulsar-migrate-page"]["containers"]
    assert container["readinessProbe"]["tcpSocket"] == container["livenessProbe"]["tcpSocket"] == {"port": "https"}
    plain = dict.fromkeys([f"{prefix}_CERTIFICATE", f"{prefix}_KEY", "PULSAR_MIGRATE_PAGE_TOKENS_FILE"])
    [container] = pods(render(changed({"page.files": plain}), tmp_path))["pulsar-migrate-page"]["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "https", "scheme": "HTTP"}


def test_the_page_is_reached_also_without_temporal(tmp_path: Path) -> None:
    """A Service has ready pods only: the page stays ready, and a gateway that cannot serve does not."""
    containers = {name: pod["containers"][0] for name, pod in pods(render(VALUES, tmp_path)).items()}
    ready = {name: containers[f"pulsar-migrate-{name}"]["readinessProbe"]["httpGet"]["path"] for name in PARTS[1:]}
    assert ready == {"gateway": "/readyz", "page": "/healthz"}


def test_monitoring_has_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    """The switches add both from their files, with labels by which the operator and Grafana find them."""
    rule = {"enabled": True, "labels": {"release": "kube-prometheus-stack"}}
    monitoring = {"podMonitor": {"enabled": True}, "prometheusRule": rule, "dashboard": {"enabled": True}}
    objects = render(changed({"monitoring": monitoring}), tmp_path)
    alerts = objects["PrometheusRule", "pulsar-migrate"]
    assert alerts["spec"] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    assert alerts["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    board = objects["ConfigMap", "pulsar-migrate-dashboard"]
    assert json.loads(board["data"]["pulsar-migrate.json"]) == json.loads((CHART / "files/dashboard.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    [endpoint] = objects["PodMonitor", "pulsar-migrate-page"]["spec"]["podMetricsEndpoints"]
    hosts = variables(pods(objects)["pulsar-migrate-page"])["PULSAR_MIGRATE_PAGE_HOSTS"].split(",")
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] in hosts


def test_releases_do_not_share_pods(tmp_path: Path) -> None:
    """Two releases in a namespace have other names and select other pods: each cluster has a gateway of its own."""
    first, second = (render(VALUES, tmp_path, release=release) for release in ("blue", "green"))
    assert not set(first) & set(second)
    names = [name for (kind, name) in first if kind == "Deployment"]
    assert sorted(names) == [f"blue-pulsar-migrate-{name}" for name in sorted(PARTS)]
    for name in names:
        selector = first["Deployment", name]["spec"]["selector"]["matchLabels"]
        other = second["Deployment", name.replace("blue", "green")]["spec"]["template"]["metadata"]["labels"]
        assert not selector.items() <= other.items()
