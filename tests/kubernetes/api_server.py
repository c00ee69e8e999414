"""A real API server of Kubernetes with its store, for objects that are checked, and not run."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.ports import PortBlock
from tests.support.waiting import wait_for

_PROGRAMS = ("etcd", "kube-apiserver")
_RESOURCES = cache_folder() / "prometheus-operator"
_TOKEN = "test-token"  # of a server on loopback
_START_LIMIT = 60.0
_PATHS = {
    "ConfigMap": "/api/v1/{}/configmaps",
    "Deployment": "/apis/apps/v1/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/{}/networkpolicies",
    "Pod": "/api/v1/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/{}/poddisruptionbudgets",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/{}/podmonitors",
    "PrometheusRule": "/apis/monitoring.coreos.com/v1/{}/prometheusrules",
    "Role": "/apis/rbac.authorization.k8s.io/v1/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/{}/rolebindings",
    "Service": "/api/v1/{}/services",
    "ServiceAccount": "/api/v1/{}/serviceaccounts",
}


class Answer(NamedTuple):
    """An answer about an object.

    Attributes:
        error: why it is refused; empty if it is accepted.
        warnings: what it warns of.
    """

    error: str
    warnings: list[str]


class ApiServer:
    """A server that runs.

    Args:
        client: sends requests with the token of an administrator.
        kubeconfig: file by which programs find the server.
    """

    def __init__(self, client: httpx.Client, kubeconfig: Path) -> None:
        self._client, self.kubeconfig = client, kubeconfig

    def check(self, item: dict[str, Any], namespace: str) -> Answer:
        """Apply an object without storing it; a field that Kubernetes does not have is an error.

        Args:
            item: the object.
            namespace: where it goes, if it does not say so itself.
        """
        place = f"namespaces/{item['metadata'].get('namespace', namespace)}"
        path = f"{_PATHS[item['kind']].format(place)}/{item['metadata']['name']}"
        options = {"fieldManager": "test", "fieldValidation": "Strict", "dryRun": "All"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        answer = self._client.patch(path, params=options, headers=headers, content=json.dumps(item))
        error = "" if answer.is_success else answer.json()["message"]
        return Answer(error, answer.headers.get_list("warning"))

    def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        """Store an object, or ask a question of which the server makes no object; return the answer."""
        answer = self._client.post(path, json=item)
        assert answer.is_success, answer.text
        return answer.json()

    def list(self, kind: str, namespace: str) -> dict[str, dict[str, Any]]:
        """Return the objects of a kind by their names."""
        answer = self._client.get(_PATHS[kind].format(f"namespaces/{namespace}"))
        assert answer.is_success, answer.text
        return {item["metadata"]["name"]: item for item in answer.json()["items"]}

    def may(self, account: str, verb: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether a service account (`namespace:name`) may do something with an object of the group `apps`."""
        resource, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": "apps", "resource": resource, "subresource": subresource}
        attributes |= {"namespace": namespace, "name": name}
        spec = {"user": f"system:serviceaccount:{account}", "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return self.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]

    def add_custom_resources(self) -> None:
        """Add the kinds of the Prometheus operator, and wait until they are served."""
        files = sorted(_RESOURCES.iterdir())
        for file in files:
            definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for kind in ("PodMonitor", "PrometheusRule"):
            path = _PATHS[kind].format("namespaces/default")
            wait_for(f"{kind} is served", lambda path=path: self._client.get(path).is_success, _START_LIMIT)


@contextmanager
def api_server(folder: Path) -> Generator[ApiServer]:
    """Start a server with an empty store; skip the test where its programs are missing."""
    bin_folder = cache_folder() / "bin"
    if missing := [name for name in _PROGRAMS if not (bin_folder / name).exists()]:
        pytest.skip(f"{' and '.join(missing)} are missing: `make kubernetes` builds them with Go")
    block = PortBlock()
    store = block.take(set())
    peer = block.take({store})
    port = block.take({store, peer})
    etcd = [
        str(bin_folder / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{store}",
        f"--advertise-client-urls=http://127.0.0.1:{store}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]
    server = [str(bin_folder / "kube-apiserver"), *_options(folder, store, port)]
    with _running(etcd, folder / "etcd.log"), _running(server, folder / "server.log") as process:
        yield _wait_ready(process, folder, port)
    block.release()


def _options(folder: Path, store: int, port: int) -> list[str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key_file, tokens = folder / "accounts.key", folder / "tokens.csv"
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    tokens.write_text(f"{_TOKEN},test,test,system:masters\n")
    return [
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key_file}",
        f"--service-account-signing-key-file={key_file}",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--endpoint-reconciler-type=none",
    ]


@contextmanager
def _running(command: list[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_ready(process: subprocess.Popen[bytes], folder: Path, port: int) -> ApiServer:
    certificate = folder / "certificates/apiserver.crt"

    def written() -> bool:
        # It exists before it has content.
        return certificate.exists() and "-----END CERTIFICATE-----" in certificate.read_text()

    wait_for("the certificate", lambda: written() or process.poll() is not None, _START_LIMIT)
    address = f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cafile=str(certificate))
    client = httpx.Client(base_url=address, verify=context, headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=30)

    def ready() -> bool:
        assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
        try:
            return client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    wait_for("the API server is ready", ready, _START_LIMIT)
    cluster = {"server": address, "certificate-authority": str(certificate)}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    file = folder / "kubeconfig.json"
    file.write_text(json.dumps(kubeconfig))
    file.chmod(0o600)
    return ApiServer(client, file)
