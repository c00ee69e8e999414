"""`pulsar-migrate doctor` on real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.defects import Product, defects_of
from models.releases import parse_release
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.policies import POLICIES, PolicyRequest, make_namespace
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack

CLUSTER = "examined"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A live cluster, and an empty target."""
    return make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=1, cluster=CLUSTER))


def doctor(environment: Environment, source: str, target: str, **settings: str) -> tuple[int, dict[str, Any]]:
    """Run the command; its exit code, and its findings by subject."""
    input = {"cluster": CLUSTER, "source": source, "target": target}
    words = ["doctor", "metadata-store", "--input", json.dumps(input), "-o", "json"]
    done = run_command(environment, *words, **settings)
    assert done.stderr == ""
    return done.returncode, {finding["subject"]: finding for finding in json.loads(done.stdout)}


def test_a_healthy_cluster(stack: Stack, environment: Environment) -> None:
    """Every server of a healthy cluster is found and answers, and nothing is written to either store."""
    before = stores.read_zookeeper(stack.zk_url, without_coordinator=False)
    metrics = {"PULSAR_MIGRATE_METRICS_ADDRESS": environment.worker.metrics_address}
    code, findings = doctor(environment, stack.zk_url, stack.oxia_url, **metrics)
    findings.pop(f"releases of {CLUSTER}")
    assert (code, {finding["level"] for finding in findings.values()}) == (0, {"ok"}), findings
    assert "is served by a running worker" in findings["metrics"]["detail"]
    assert "is served by " in findings["workers"]["detail"]
    (broker,) = [finding for subject, finding in findings.items() if subject.startswith("broker ")]
    assert broker["detail"] == f"Pulsar {chosen_release().version} at {stack.admin_urls[0]}"
    (bookie,) = [finding for subject, finding in findings.items() if subject.startswith("bookie ")]
    assert bookie["detail"].endswith(" are free")
    assert stores.read_zookeeper(stack.zk_url, without_coordinator=False).keys() == before.keys()
    assert stores.read_oxia(stack.oxia_url) == {}


def test_known_defects_are_named(stack: Stack, environment: Environment) -> None:
    """Each known defect of the running release is a warning with number and advice, and no other defect is named."""
    input = json.dumps({"cluster": CLUSTER, "source": stack.zk_url, "target": stack.oxia_url})
    done = run_command(environment, "doctor", "metadata-store", "--input", input)
    assert done.returncode == 0
    reported = [line for line in done.stdout.splitlines() if f"releases of {CLUSTER}: " in line]
    release = parse_release(chosen_release().version)
    for defect in defects_of("metadata-store/live", Product.PULSAR):
        named = f"warning  releases of {CLUSTER}: known defect {defect}"
        assert (named in reported) == defect.affects(release, {}), defect.id
    assert any("BATCH_ACKS_UNSAVED (#26498)" in line for line in reported)
    assert any("servers of Oxia do not report their release" in line for line in reported)


def test_a_wrong_chroot(stack: Stack, environment: Environment) -> None:
    """An address of another path than the cluster's is reported: no such cluster, no broker, no bookie."""
    code, findings = doctor(environment, f"{stack.zk_url}/other", stack.oxia_url)
    assert code == 0
    assert "has no Pulsar cluster" in findings[f"cluster {CLUSTER}"]["detail"]
    assert {findings[subject]["level"] for subject in ("brokers", "bookies of the source")} == {"warning"}


def test_a_silent_store(stack: Stack, environment: Environment) -> None:
    """A store that does not answer fails with exit code 7 and its address; the others are still checked."""
    host = stack.oxia_url.removeprefix("oxia://").partition("/")[0]
    stack["oxia-1"].pause()
    try:
        # Short, as nothing answers, and long enough for those that do on a busy machine.
        code, findings = doctor(environment, stack.zk_url, stack.oxia_url, PULSAR_MIGRATE_STORE_TIMEOUT="PT5S")
    finally:
        stack["oxia-1"].resume()
    assert (code, findings[f"target {host}"]["level"], findings[f"target {host}"]["exit_code"]) == (7, "failed", 7)
    assert findings[f"target {host}"]["cure"]
    assert findings[f"cluster {CLUSTER}"]["level"] == "ok"


_NAMESPACE = "public/used"
_POLICIES: tuple[PolicyRequest, ...] = (
    *POLICIES,
    ("/messageTTL", "POST", 3600),
    ("/deduplication", "POST", True),
    ("/compactionThreshold", "PUT", 1_000_000),
    ("/subscriptionTypesEnabled", "POST", ["Shared"]),
    ("/encryptionRequired", "POST", True),
    (
        "/inactiveTopicPolicies",
        "POST",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 3600,
            "deleteWhileInactive": False,
        },
    ),
)
_SHOWN_BY_POLICIES = {
    "RETENTION",
    "DEDUPLICATION",
    "COMPACTION",
    "PERSISTENCE",
    "LIMITS_AND_RATES",
    "AUTO_CREATION",
    "PROPERTIES",
    "ISOLATION",
    "PERMISSIONS",
    "SCHEMAS",
    "OFFLOAD",
    "SUBSCRIPTION_TYPES",
    "DELAYED_DELIVERY",
    "ENCRYPTION",
    "BOOKIE_AFFINITY",
    "INACTIVE_TOPICS",
}


def features(environment: Environment, stack: Stack, *words: str) -> dict[str, Any]:
    """Return what `features` finds in the cluster, by id."""
    input = json.dumps({"cluster": CLUSTER, "source": stack.zk_url, "target": stack.oxia_url})
    done = run_command(environment, "features", "metadata-store", "--input", input, "-o", "json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_features_of_a_cluster(stack: Stack, environment: Environment, tmp_path: Path) -> None:
    """Each policy that an operator sets makes its feature one in use, and what the table does not know is refused."""
    states = {name: row["state"] for name, row in features(environment, stack)["features"].items()}
    assert {name for name in _SHOWN_BY_POLICIES if states[name] != "not in use"} == set()
    make_namespace(stack, _NAMESPACE, _POLICIES)
    answer = features(environment, stack, "--objects", str(tmp_path / "objects.json"))
    assert {name for name in _SHOWN_BY_POLICIES if answer["features"][name]["state"] != "in use"} == set()
    assert answer["features"]["RETENTION"]["objects"] == [_NAMESPACE]
    assert json.loads((tmp_path / "objects.json").read_text()) == answer
    assert answer["unknown"] == {}
    path = f"/admin/policies/{_NAMESPACE}"
    with stores.kazoo(stack.zk_url) as zookeeper:
        value, _ = zookeeper.get(path)
        zookeeper.set(path, json.dumps({**json.loads(value), "futurePolicy": True}).encode())
        code, findings = doctor(environment, stack.zk_url, stack.oxia_url)
        zookeeper.set(path, value)
    finding = findings[f"features of {CLUSTER}"]
    assert (code, finding["level"]) == (2, "failed")
    assert f"unknown policy futurePolicy: {_NAMESPACE}" in finding["detail"]
    assert '"accept": ["policy:futurePolicy"]' in finding["cure"]
