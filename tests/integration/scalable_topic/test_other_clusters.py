"""Topics become scalable where brokers keep their metadata in Oxia, and where they ask for TLS and tokens."""

from __future__ import annotations

import json
import ssl
from typing import NamedTuple

import httpx
import pytest
from pydantic import SecretStr

from activities.lifecycle.precheck import Findings
from activities.pulsar.namespace_guard import recorded_namespaces
from activities.pulsar.registrations import brokers
from activities.scalable_topic.checks.cluster import check_rights
from activities.scalable_topic.cluster import recorded_topics
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminDenied, AdminNotFound
from clients.pulsar.admin.namespaces import NamespaceAction, Retention
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from clients.stores import Access, open_cas, open_reader
from clients.tls import Tls
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import Outcome, WaitKind
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.phases import Phase
from models.segments.repair import NEVER_DROPPED
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.blue_green.namespaces import create_namespace
from tests.support.clients.certificates import Authority
from tests.support.clients.destinations import LOOPBACK
from tests.support.clients.pulsar_auth import TokenKey, tls_settings
from tests.support.lifecycle.environment import Environment
from tests.support.scalable_topic.topics import QUEUE, fill, regular_parents_of
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_until_equal

OWN = Retention(retention_time_in_minutes=7, retention_size_in_m_b=70)
FOR_EVER = Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def test_brokers_on_oxia(make_stack: MakeStack, environment: Environment) -> None:
    """The topic is complete, with its schema, and what a lost run has changed is restored by the next start."""
    stack = make_stack(StackSpec(oxias=1, bookies=1, brokers=1, metadata="oxia"))
    lost, name = (TopicName.parse(f"persistent://on/oxia/{which}") for which in ("lost", "kept"))
    with (
        PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin,
        open_cas(parse_store_url(stack.metadata_url), Access()) as store,
    ):
        create_namespace(admin, "on/oxia")
        admin.namespaces.set_retention("on/oxia", OWN)
        for each in (lost, name):
            fill(stack, admin, each, 2)
        run = environment.operator.start(_input(stack, admin, lost, force=True))
        run.wait_until_it_waits_for(WaitKind.CLIENTS, phase=Phase.DRAIN)
        run.terminate()
        assert admin.namespaces.retention("on/oxia") == FOR_EVER
        assert recorded_namespaces(store) == ["on/oxia"]
        admin.schemas.add(name, "JSON", '{"type":"record","name":"Order","fields":[]}')
        schema = admin.schemas.versions(name)
        fields = {"auto_scale": {"enabled": False}}
        run = environment.operator.start(_input(stack, admin, name, client_timeout="PT0S", **fields))
        assert "ordered subscriptions with a backlog" in run.failure().message
        wait_until_equal("the previous policies", lambda: admin.namespaces.retention("on/oxia"), OWN, 30)
        for subscription in (QUEUE, "stream"):
            admin.subscriptions.skip_all(name, subscription)
        report = environment.operator.run(_input(stack, admin, name, **fields))
        assert report.outcome is Outcome.DONE, report.notes
        assert [regular_parent.sealed_at_ms for regular_parent in regular_parents_of(admin, name)] == 2 * [
            NEVER_DROPPED
        ]
        assert admin.schemas.versions(name) == schema
        for each in (lost, name):
            assert read_scalable(store, each).state is RecordState.GOOD
            assert set(recorded_subscriptions(store, each)) == {QUEUE, "stream"}
        assert store.get(CLAIM) is None
        assert recorded_namespaces(store) == []
        assert name not in recorded_topics(store)


class _Safe(NamedTuple):
    """Brokers that ask for TLS and tokens.

    Attributes:
        stack: of them.
        url: of the admin interface, by TLS.
        key: signs tokens.
        authority: signs certificates.
    """

    stack: Stack
    url: str
    key: TokenKey
    authority: Authority

    def access(self, role: str) -> AdminAccess:
        """Return how a role talks to them."""
        return AdminAccess(30, Token(SecretStr(self.key.token(role))), Tls(str(self.authority.cert_file)), LOOPBACK)


@pytest.fixture(scope="module")
def safe(make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> _Safe:
    """One broker."""
    key, authority = TokenKey(), Authority(toolchain, tmp_path_factory.mktemp("safe"))
    settings = {
        **key.broker_settings("root"),
        **tls_settings(authority, authority.identity("safe", "127.0.0.1")),
        "brokerServicePortTls": "0",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, cluster="safe", broker_settings=settings))
    with open_reader(parse_store_url(stack.metadata_url), Access()) as reader:
        (broker,) = brokers(reader)
    return _Safe(stack, str(json.loads(broker.data)["webServiceUrlTls"]), key, authority)


@pytest.mark.exhaustive
def test_brokers_with_tls_and_tokens(safe: _Safe, environment: Environment) -> None:
    """The migration uses TLS, as a superuser, for all that it reads and changes."""
    environment.secrets.write("blue", safe.key.token("root"), safe.authority.cert_file)
    name = TopicName.parse("persistent://safe/space/topic")
    with (
        PulsarAdmin.open(safe.access("root"), [safe.url]) as admin,
        open_cas(parse_store_url(safe.stack.metadata_url), Access()) as store,
    ):
        create_namespace(admin, "safe/space")
        admin.topics.create_partitioned(name, 2)
        admin.subscriptions.create(name, QUEUE)
        given = {**_given(safe.stack, "safe", name), "admin_urls": [safe.url], "credentials": "blue"}
        report = environment.operator.run(ScalableTopicInput.model_validate(given))
        assert report.outcome is Outcome.DONE, report.notes
        assert set(recorded_subscriptions(store, name)) == {QUEUE}
        assert [admin.topics.internal_stats(name.of_partition(number)).state for number in range(2)] == [
            "Terminated",
            "Terminated",
        ]


@pytest.mark.exhaustive
def test_a_role_without_rights_is_a_blocker(safe: _Safe, environment: Environment) -> None:
    """Brokers say whether a role may migrate topics of a namespace, and make their segments; asking changes nothing."""
    name = TopicName.parse("persistent://safe/rights/topic")
    with (
        PulsarAdmin.open(safe.access("root"), [safe.url]) as root,
        PulsarAdmin.open(safe.access("app"), [safe.url]) as app,
        open_cas(parse_store_url(safe.stack.metadata_url), Access()) as store,
    ):
        create_namespace(root, "safe/rights")
        root.topics.create(name)
        for role in (app, root):
            findings = Findings()
            check_rights(role, findings, ["safe/rights"])
            assert [blocker.code for blocker in findings.blockers] == (["NO_RIGHT"] if role is app else [])
        # To produce is enough for the call itself, and not for what completes it.
        unknown = TopicName.parse("persistent://safe/rights/unknown")
        with pytest.raises(AdminDenied):
            app.scalable_topics.migrate(unknown)
        root.namespaces.grant("safe/rights", "app", [NamespaceAction.PRODUCE])
        with pytest.raises(AdminNotFound):
            app.scalable_topics.migrate(unknown)
        findings = Findings()
        check_rights(app, findings, ["safe/rights"])
        assert "/segments/" in findings.blockers[0].cause
        assert (root.topics.names("safe/rights"), root.scalable_topics.names("safe/rights")) == ([str(name)], [])
        assert store.children("/topic-creation-locks/safe/rights") == []
        environment.secrets.write("blue", safe.key.token("app"), safe.authority.cert_file)
        given = {**_given(safe.stack, "safe", name), "admin_urls": [safe.url], "credentials": "blue"}
        failure = environment.operator.start(ScalableTopicInput.model_validate(given)).failure()
        assert "BROKERS_DENIED" in failure.message
        assert store.get(CLAIM) is None


@pytest.mark.exhaustive
def test_rights_on_the_topic_follow(safe: _Safe, environment: Environment) -> None:
    """Brokers copy the rights of roles from the regular topic to the scalable one, and not those on a partition."""
    name = TopicName.parse("persistent://safe/roles/topic")
    with PulsarAdmin.open(safe.access("root"), [safe.url]) as root:
        create_namespace(root, "safe/roles")
        root.topics.create_partitioned(name, 2)
        _grant(safe, name, "whole")
        _grant(safe, name.of_partition(1), "part")
        environment.secrets.write("blue", safe.key.token("root"), safe.authority.cert_file)
        given = {**_given(safe.stack, "safe", name), "admin_urls": [safe.url], "credentials": "blue"}
        assert (
            "PARTITION_RIGHTS" in environment.operator.start(ScalableTopicInput.model_validate(given)).failure().message
        )
        _grant(safe, name, "part")
        report = environment.operator.run(ScalableTopicInput.model_validate(given))
        assert report.outcome is Outcome.DONE, report.notes
        rights = root.namespaces.policies("safe/roles").raw["auth_policies"]["destination_auth"]
        assert rights[f"topic://{name.local_path}"] == rights[str(name)]
    for role in ("whole", "part"):
        with PulsarAdmin.open(safe.access(role), [safe.url]) as app:
            assert app.scalable_topics.layout(name).active


def _grant(safe: _Safe, name: TopicName, role: str) -> None:
    headers = {"authorization": f"Bearer {safe.key.token('root')}"}
    url = f"{safe.url}/admin/v2/{name.rest_path}/permissions/{role}"
    verify = ssl.create_default_context(cafile=str(safe.authority.cert_file))
    httpx.post(url, json=["produce", "consume"], headers=headers, verify=verify, timeout=30).raise_for_status()


def _input(stack: Stack, admin: PulsarAdmin, topic: TopicName, **more: object) -> ScalableTopicInput:
    cluster = admin.brokers.runtime_configuration()["clusterName"]
    return ScalableTopicInput.model_validate({**_given(stack, cluster, topic), **more})


def _given(stack: Stack, cluster: str, topic: TopicName) -> dict[str, object]:
    return {
        "cluster": cluster,
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "topic": str(topic),
        "hold_before_cutover": False,
    }
