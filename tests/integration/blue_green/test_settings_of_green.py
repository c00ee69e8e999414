"""Brokers of green that are configured to refuse what blue's take, or to deliver it otherwise."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import pytest

from activities.blue_green.precheck import precheck
from clients.pulsar.names import TopicName
from models.blue_green.results import Precheck
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import pulsar, quiet_client
from tests.support.blue_green.environment import BLUE_SPEC, GREEN_SPEC, Clusters, open_clusters
from tests.support.blue_green.namespaces import create_namespace, create_topic
from tests.support.blue_green.steps import Steps
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

_SETTINGS = {
    "allowAutoTopicCreation": "false",
    "delayedDeliveryEnabled": "false",
    "isSchemaValidationEnforced": "true",
    "maxConsumerMetadataSize": "8",
    "maxSameAddressProducersPerTopic": "1",
    "schemaCompatibilityStrategy": "FULL",
    "subscriptionRedeliveryTrackerEnabled": "false",
}
_RECORD = '{"type":"record","name":"r","fields":[{"name":"%s","type":"string"}]}'
_SHARED = pulsar.ConsumerType.Shared
_IN_AN_HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def strict(make_stack: MakeStack, blue_tools: Toolchain) -> Generator[Clusters]:
    """A green whose brokers refuse what those of blue take."""
    lenient = {**BLUE_SPEC.broker_settings, "schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE"}
    blue = make_stack(BLUE_SPEC.model_copy(update={"brokers": 1, "broker_settings": lenient}), tools=blue_tools)
    green = GREEN_SPEC.model_copy(update={"broker_settings": {**GREEN_SPEC.broker_settings, **_SETTINGS}})
    with open_clusters(blue, make_stack(green)) as both:
        yield both


def _topics(clusters: Clusters, namespace: str) -> tuple[TopicName, TopicName]:
    """Return a topic of both clusters, and one with a schema of two versions that are not compatible on green."""
    for admin in (clusters.blue_admin, clusters.green_admin):
        create_namespace(admin, namespace, schema_compatibility_strategy="UNDEFINED")
        plain, typed = (create_topic(admin, f"{namespace}/{name}") for name in ("plain", "typed"))
        for field in "ab":
            if admin is clusters.blue_admin or field == "b":
                admin.schemas.add(typed, "JSON", _RECORD % field)
    return plain, typed


@pytest.mark.exhaustive
def test_what_green_refuses(strict: Clusters) -> None:
    """PRECHECK names each setting by which green refuses clients, while they use blue."""
    namespace = "settings/refused"
    plain, typed = _topics(strict, namespace)
    steps = Steps(strict, namespace)

    def opened(client: Any) -> dict[str, Callable[[], Any]]:
        return {
            "allowAutoTopicCreation": lambda: client.create_producer(f"non-persistent://{namespace}/fleeting"),
            "isSchemaValidationEnforced": lambda: client.create_producer(str(typed)),
            "maxConsumerMetadataSize": lambda: client.subscribe(str(plain), "s", properties={"team": "orders"}),
            "maxSameAddressProducersPerTopic": lambda: [client.create_producer(str(plain)) for _ in range(2)],
            "schemaCompatibilityStrategy": lambda: client.subscribe(str(typed), "s", schema=_schema("a")),
        }

    with closing(quiet_client(strict.blue.broker_url)) as client:
        clients = opened(client)
        for open_it in clients.values():
            open_it()
        named = _blocking(steps.whole(precheck))
    refused: set[str] = set()
    # It tries again until its time limit.
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(strict.green.broker_url, operation_timeout_seconds=3, logger=logger)) as client:
        for setting, open_it in opened(client).items():
            with suppress(pulsar.PulsarException):
                open_it()
                continue
            refused.add(setting)
    assert (refused, named) == ({*clients}, {*clients})


@pytest.mark.exhaustive
def test_what_green_delivers_otherwise(strict: Clusters) -> None:
    """PRECHECK names each setting by which green delivers messages otherwise, while they are used on blue."""
    namespace = "settings/delivered"
    plain, _ = _topics(strict, namespace)
    steps = Steps(strict, namespace)
    result = steps.whole(precheck)
    assert _blocking(result) == {"isSchemaValidationEnforced", "schemaCompatibilityStrategy"}
    assert any("delivers delayed messages at once" in warning for warning in result.warnings)
    counts: list[int] = []
    for address in (strict.blue.broker_url, strict.green.broker_url):
        with closing(quiet_client(address)) as client:
            consumer = client.subscribe(str(plain), "s", consumer_type=_SHARED, negative_ack_redelivery_delay_ms=100)
            producer = client.create_producer(str(plain))
            producer.send(b"now")
            consumer.negative_acknowledge(consumer.receive(10_000))
            message = consumer.receive(10_000)
            counts.append(message.redelivery_count())
            consumer.acknowledge(message)
            producer.send(b"later", deliver_after=_IN_AN_HOUR)
            if address == strict.green.broker_url:
                assert consumer.receive(10_000).data() == b"later"
            else:
                wait_for("it", lambda: strict.blue_admin.topics.stats(plain).subscriptions["s"].msg_delayed, 20)
                with pytest.raises(pulsar.Timeout):
                    consumer.receive(1_000)
                result = steps.whole(precheck)
    assert counts == [1, 0]
    assert {"delayedDeliveryEnabled", "subscriptionRedeliveryTrackerEnabled"} <= _blocking(result)


def _schema(field: str) -> Any:
    library = importlib.import_module("pulsar.schema")
    return library.JsonSchema(type("r", (library.Record,), {field: library.String()}))


def _blocking(result: Precheck) -> set[str]:
    """Return the settings that blockers name."""
    return {name for blocker in result.blockers for name in _SETTINGS if name in blocker.cause}
