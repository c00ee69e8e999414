"""A blue-green migration between clusters with TLS, tokens and authorization, each with credentials of its own."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import NamespaceAction
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.backlogs import received, require_sent, sent
from tests.support.blue_green.cleanup import clean_up
from tests.support.blue_green.namespaces import wait_until_listed
from tests.support.blue_green.secure import BLUE, CLIENTS, GREEN, SecureClusters, secure_clusters
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.planted import SecretWatch
from tests.support.stacks import MakeStack

NAMESPACES = ("shop/one", "shop/two")
CLOSED = "closed/one"
"""Both clusters have it, and the clients' role may use it on blue alone."""
TOPICS = [f"persistent://{namespace}/{name}" for namespace in NAMESPACES for name in ("plain", "other")]


@pytest.fixture(scope="module")
def clusters(
    make_stack: MakeStack,
    toolchain: Toolchain,
    blue_tools: Toolchain,
    environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
) -> SecureClusters:
    """Both clusters, with namespaces on blue in which the clients' role may produce and consume."""
    clusters = secure_clusters(make_stack, toolchain, tmp_path_factory.mktemp("secure"), blue_tools=blue_tools)
    clusters.deposit(environment.secrets)
    with clusters.blue.admin() as admin:
        admin.tenants.create("shop", Tenant(allowed_clusters=(BLUE,)))
        for namespace in NAMESPACES:
            admin.namespaces.create(namespace, {"replication_clusters": [BLUE], "bundles": {"numBundles": 1}})
            admin.namespaces.grant(namespace, CLIENTS, [NamespaceAction.PRODUCE, NamespaceAction.CONSUME])
        for topic in TOPICS:
            admin.topics.create(TopicName.parse(topic))
        _close(admin, BLUE)
        admin.namespaces.grant(CLOSED, CLIENTS, [NamespaceAction.PRODUCE])
    with clusters.green.admin() as admin:
        _close(admin, GREEN)
    return clusters


def _close(admin: PulsarAdmin, cluster: str) -> None:
    admin.tenants.create("closed", Tenant(allowed_clusters=(cluster,)))
    admin.namespaces.create(CLOSED, {"replication_clusters": [cluster]})
    admin.topics.create(TopicName.parse(f"{CLOSED}/topic"))


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"green": "gren"}, ("[GREEN_CREDENTIALS]", "'gren'; they have", "PULSAR_MIGRATE_CREDENTIALS__GREN__")),
        ({"green": ""}, ("[GREEN_BROKERS_DENIED]", "certificate", "or the set's")),
        pytest.param({"green": "misled"}, ("[GREEN_BROKERS_DENIED]", "certificate"), marks=pytest.mark.exhaustive),
        ({"blue": "clients"}, ("[BLUE_BROKERS_DENIED]", "clientAppId [application]", "superuser's credentials")),
        pytest.param(
            {"blue": "strangers"},
            ("[BLUE_BROKERS_DENIED]", "401", "superuser's credentials"),
            marks=pytest.mark.exhaustive,
        ),
        ({"client_credentials": ["unknown"]}, ("[CLIENT_CREDENTIALS]", "PULSAR_MIGRATE_CREDENTIALS__UNKNOWN__")),
        ({"client_credentials": ["strangers"]}, ("[GREEN_CLIENTS]", "'strangers' cannot connect to pulsar+ssl://")),
        (
            {"client_credentials": ["clients"], "namespaces": ["*/*"]},
            ("[GREEN_CLIENTS]", "'clients' may use closed/one only on safe-blue"),
        ),
    ],
    ids=["unknown", "common", "authority", "role", "key", "no such clients", "clients' key", "clients' permissions"],
)
def test_wrong_credentials_are_refused_before_anything_moves(
    clusters: SecureClusters, environment: Environment, fields: dict[str, Any], texts: tuple[str, ...]
) -> None:
    """A missing set, another authority, role or key is a blocker each; the common credentials never replace a set."""
    failure = environment.operator.refusal(clusters.input(**fields))
    assert failure.type == FailureKind.PRECHECK_FAILED
    for text in texts:
        assert text in failure.message


def test_clients_follow_from_tls_to_tls(clusters: SecureClusters, environment: Environment) -> None:
    """Clients with a token for both follow from TLS to TLS, a backlog is copied; all arrives, blue is cleaned up.

    All the time no secret is in programs of the worker, in temporary files, its log, its metrics or a history.
    """
    with SecretWatch(lambda: environment.worker.pids, environment.secrets.marks, [environment.temporary]) as watch:
        _follow(clusters, environment)
    assert not watch.found
    # A process of Spark ran tasks, which connected with the tokens.
    assert [program for program in watch.programs if b"pyspark.daemon" in program]
    worker = environment.worker
    metrics = httpx.get(f"http://{worker.metrics_address}/metrics", trust_env=False, timeout=30).content
    for text in (worker.log.read_bytes(), metrics, *environment.operator.histories()):
        assert text
        assert not watch.holds(text)


def _follow(clusters: SecureClusters, environment: Environment) -> None:
    *_, backlog = TOPICS
    with clusters.blue.admin() as admin:
        admin.subscriptions.create(TopicName.parse(backlog), "idle")
    with Traffic.here(clusters.blue.broker_url, TOPICS, options=clusters.client_options()) as traffic:
        traffic.wait_for_more(20)
        waves: dict[str, object] = {"gate": "none", "canary": 0, "batch_size": 2, "wave_size": 2}
        run = environment.operator.start(
            clusters.input(
                namespaces=["shop/*"],
                waves=waves,
                client_credentials=["clients"],
                idle_subscriptions="copy",
                quiesce_timeout="PT2M",
                cleanup="remove",
            )
        )
        run.wait_until("the grace window", lambda status: status.phase == "GRACE")
        traffic.wait_for_more(20)
        with clusters.green.admin() as admin:
            publishers = [
                publisher for topic in TOPICS for publisher in admin.topics.stats(TopicName.parse(topic)).publishers
            ]
            assert len(publishers) == len(TOPICS)
        traffic.verify()
    report = clean_up(run)
    assert report.outcome is Outcome.DONE, report.summary
    assert (report.figures["namespaces_moved"], report.certificate["faults"]) == (2, 0)
    assert report.certificate["missing_clients"] == 0
    assert report.certificate["subscriptions_copied"] == 1
    with clusters.blue.admin() as admin:
        for namespace in NAMESPACES:
            wait_until_listed(admin, namespace, [])
    url, expected = clusters.green.broker_url, sent(traffic, backlog)
    idle = received(url, backlog, "idle", least=len(expected), **clusters.client_options())
    require_sent(idle, expected, traffic)
