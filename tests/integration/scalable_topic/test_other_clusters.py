"""Topics become scalable where brokers keep their metadata in Oxia, and where they ask for TLS and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from activities.lifecycle.namespace_guard import recorded_namespaces
from activities.lifecycle.registrations import brokers
from activities.scalable_topic.cluster import recorded_topics
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import RecordState, read_scalable, recorded_subscriptions
from clients.stores import Access, open_cas, open_reader
from clients.tls import Tls
from deploy.devstack.stack import Stack, StackSpec
from deploy.devstack.toolchain import Toolchain
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import Outcome, WaitKind
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.phases import Phase
from models.segment_repair import NEVER_DROPPED
from models.store_url import parse_store_url
from tests.support.blue_green.namespaces import create_namespace
from tests.support.clients.certificates import Authority
from tests.support.clients.pulsar_auth import TokenKey, tls_settings
from tests.support.lifecycle.environment import Environment
from tests.support.scalable_topic.topics import QUEUE, fill, regular_parents_of
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

OWN = Retention(retention_time_in_minutes=7, retention_size_in_m_b=70)
FOR_EVER = Retention(retention_time_in_minutes=-1, retention_size_in_m_b=-1)


def test_brokers_on_oxia(make_stack: MakeStack, environment: Environment) -> None:
    """The topic is complete, with its schema, and what a lost run has changed is put back by the next start."""
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
        kept = {"auto_scale": {"enabled": False}}
        run = environment.operator.start(_input(stack, admin, name, client_timeout="PT0S", **kept))
        assert "ordered subscriptions with a backlog" in run.failure().message
        wait_for("the policies of before", lambda: admin.namespaces.retention("on/oxia") == OWN, 30)
        for one in (QUEUE, "stream"):
            admin.subscriptions.skip_all(name, one)
        report = environment.operator.run(_input(stack, admin, name, **kept))
        assert report.outcome is Outcome.DONE, report.notes
        assert [one.sealed_at_ms for one in regular_parents_of(admin, name)] == 2 * [NEVER_DROPPED]
        assert admin.schemas.versions(name) == schema
        for each in (lost, name):
            assert read_scalable(store, each).state is RecordState.GOOD
            assert set(recorded_subscriptions(store, each)) == {QUEUE, "stream"}
        assert store.get(CLAIM) is None
        assert recorded_namespaces(store) == []
        assert name not in recorded_topics(store)


@pytest.mark.exhaustive
def test_brokers_with_tls_and_tokens(
    make_stack: MakeStack, toolchain: Toolchain, environment: Environment, tmp_path: Path
) -> None:
    """All that the migration asks and changes goes by TLS, as a superuser."""
    key, authority = TokenKey(), Authority(toolchain, tmp_path)
    settings = {
        **key.broker_settings("root"),
        **tls_settings(authority, authority.identity("safe", "127.0.0.1")),
        "brokerServicePortTls": "0",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, cluster="safe", broker_settings=settings))
    with open_reader(parse_store_url(stack.metadata_url), Access()) as reader:
        (broker,) = brokers(reader)
    url = str(json.loads(broker.data)["webServiceUrlTls"])
    environment.secrets.write("blue", key.token("root"), authority.cert_file)
    access = AdminAccess(30, Token(SecretStr(key.token("root"))), Tls(str(authority.cert_file)))
    name = TopicName.parse("persistent://safe/space/topic")
    with PulsarAdmin.open(access, [url]) as admin, open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        create_namespace(admin, "safe/space")
        admin.topics.create_partitioned(name, 2)
        admin.subscriptions.create(name, QUEUE)
        given = {**_given(stack, "safe", name), "admin_urls": [url], "credentials": "blue"}
        report = environment.operator.run(ScalableTopicInput.model_validate(given))
        assert report.outcome is Outcome.DONE, report.notes
        assert set(recorded_subscriptions(store, name)) == {QUEUE}
        assert [admin.topics.internal_stats(name.of_partition(number)).state for number in range(2)] == [
            "Terminated",
            "Terminated",
        ]


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
