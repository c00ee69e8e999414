"""The gateway with real brokers, ZooKeeper, Temporal and a worker: TLS, tokens, consumers, and what may go wrong."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from activities.topic_controller.names import segment_topic
from bench.topic_controller.joins import measure
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.segments.layout import SegmentLayout
from models.topic_controller.input import controller_id
from models.topic_controller.state import ControllerStatus
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.keyed_traffic import Arrivals, Receiving, Sending
from pulsar_scalable import ClientOptions, ConsumerOptions, ProducerOptions, ScalableClient, errors
from pulsar_scalable.stream_consumer import StreamConsumer
from tests.integration.gateway.conftest import CONSUMER, ROOT, OpenGateway, operator
from tests.support.clients.certificates import Authority
from tests.support.gateway.processes import GatewayProcess
from tests.support.gateway.tokens import token_entry
from tests.support.lifecycle.environment import Environment
from tests.support.releases import native_topics
from tests.support.topic_controller.listed_topics import wait_until_none_is_listed
from tests.support.waiting import wait_for, wait_until_equal

NO_CONTENT = HTTPStatus.NO_CONTENT
SPACE = "scalable/public/default"


def put(client: httpx.Client, path: str, status: int = NO_CONTENT) -> None:
    """Put something, which must be answered so."""
    answer = client.put(path)
    assert answer.status_code == status, answer.text


def layout_of(client: httpx.Client, topic: str) -> SegmentLayout:
    """Return the layout of a topic."""
    answer = client.get(f"{SPACE}/{topic}")
    assert answer.status_code == HTTPStatus.OK, answer.text
    return SegmentLayout.model_validate(answer.json())


def test_the_lifecycle_of_a_topic(root: httpx.Client, admin: PulsarAdmin) -> None:
    """Requests take effect on the brokers; a missing cursor is created again, and a topic's name can be used again."""
    name = TopicName.parse("persistent://public/default/rest-life")
    put(root, f"{SPACE}/rest-life?numInitialSegments=2")
    put(root, f"{SPACE}/rest-life/subscriptions/bill")
    for path, status in (("split/0", 204), ("split/0", 409), ("merge/3/1", 204), ("merge/2/9", 404)):
        assert root.post(f"{SPACE}/rest-life/{path}").status_code == status, path
    layout = layout_of(root, "rest-life")
    assert [segment.descriptor for segment in layout.active] == ["0000-3fff-2", "4000-ffff-4"]
    topics = [segment_topic(name, segment.descriptor) for segment in layout.active]
    assert [admin.subscriptions.names(topic) for topic in topics] == [["bill"]] * 2
    admin.subscriptions.delete(topics[0], "bill")
    assert root.put("segments/public/default/rest-life/0000-3fff-2", json=["bill"]).status_code == NO_CONTENT
    assert admin.subscriptions.names(topics[0]) == ["bill"]
    stats = root.get(f"{SPACE}/rest-life/stats").json()
    assert (stats["epoch"], stats["totalSegments"], stats["activeSegments"], stats["sealedSegments"]) == (2, 5, 2, 3)
    assert stats["segments"]["4"]["name"] == str(topics[1])
    assert root.delete("segments/public/default/rest-life/0000-7fff-0").status_code == NO_CONTENT
    assert 0 not in layout_of(root, "rest-life").segments
    listed = "persistent://public/default/rest-life"
    wait_for("the topic in the list", lambda: listed in root.get(SPACE).json(), 30)
    for _ in range(2):
        assert root.delete(f"{SPACE}/rest-life").status_code == NO_CONTENT
        wait_until_none_is_listed(admin, name)
        assert root.get(f"{SPACE}/rest-life").status_code == HTTPStatus.NOT_FOUND
        put(root, f"{SPACE}/rest-life")
    root.delete(f"{SPACE}/rest-life")


def test_another_cluster(root: httpx.Client, open_gateway: OpenGateway, admin: PulsarAdmin) -> None:
    """A gateway of another cluster, or of another one of the same name, neither shows nor changes a topic."""
    put(root, f"{SPACE}/rest-prod")
    segment = "persistent://public/default/rest-prod.scalable.0000-ffff-0"
    elsewhere = {"metadata_url": "zk:elsewhere:2181", "admin_urls": '["http://elsewhere:8080"]'}
    for given, status in (({"cluster": "staging"}, HTTPStatus.NOT_FOUND), (elsewhere, HTTPStatus.CONFLICT)):
        with operator(open_gateway(**given).url) as staging:
            assert staging.get(SPACE).json() == []
            for method, path in (("GET", ""), ("POST", "/split/0"), ("DELETE", "?force=true")):
                assert staging.request(method, f"{SPACE}/rest-prod{path}").status_code == status, (given, method)
    assert [segment.segment_id for segment in layout_of(root, "rest-prod").segments.values()] == [0]
    assert segment in admin.topics.names("public/default")
    root.delete(f"{SPACE}/rest-prod?force=true")


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("rest-ordinary", "is an ordinary topic"),
        pytest.param("rest-native", "brokers of Pulsar 5 control it", marks=native_topics),
    ],
)
def test_names_of_others(root: httpx.Client, admin: PulsarAdmin, topic: str, why: str) -> None:
    """An ordinary topic, and one that brokers of Pulsar 5 control, are not changed, and the answer says why."""
    name = TopicName.parse(f"persistent://public/default/{topic}")
    if topic == "rest-native":
        admin.scalable_topics.create(name, 1)
    else:
        admin.topics.create(name)
    answer = root.put(f"{SPACE}/{topic}")
    assert (answer.status_code, why in answer.json()["reason"]) == (HTTPStatus.CONFLICT, True), answer.text


def test_consumers_through_a_split(
    root: httpx.Client, gateway: GatewayProcess, authority: Authority, stack: Stack
) -> None:
    """Consumers register over the gateway, share what they read in order while segments come and go, and leave."""
    topic = "persistent://public/default/rest-stream"
    put(root, f"{SPACE}/rest-stream?numInitialSegments=2")
    put(root, f"{SPACE}/rest-stream/subscriptions/bill")
    received = Arrivals()
    with ScalableClient(
        stack.broker_url,
        ClientOptions(
            token=CONSUMER,
            tls_trust_certs_file_path=str(authority.cert_file),
            tls_validate_hostname=True,
            controller_url=gateway.url,
        ),
    ) as client:
        producer = client.create_producer(topic, ProducerOptions(block_if_queue_full=True))
        consumers = [
            client.subscribe_stream(topic, "bill", ConsumerOptions(consumer_name=name)) for name in ("one", "two")
        ]
        receiving = [Receiving(consumer, received) for consumer in consumers]
        sending = Sending(producer, 0.01)
        wait_for("messages", lambda: received.distinct > 50, 60)
        assert root.post(f"{SPACE}/rest-stream/split/0").status_code == NO_CONTENT
        wait_for("messages of new segments", lambda: _of_new_segments(received), 60)
        assert root.post(f"{SPACE}/rest-stream/merge/3/1").status_code == NO_CONTENT
        # As an earlier process of this name would send it late.
        late = root.delete(f"{SPACE}/rest-stream/subscriptions/bill/consumers/one?instance=earlier")
        assert late.status_code == NO_CONTENT
        before = received.distinct
        wait_for("messages behind the merge", lambda: received.distinct > before + 100, 60)
        assert _stats(root, "rest-stream")["bill"]["consumerCount"] == 2
        sending.stop()
        wait_for("all has come", lambda: received.distinct >= sending.count, 60)
        # What was not acknowledged when its segment moved comes again.
        wait_until_equal("the backlog", lambda: _stats(root, "rest-stream")["bill"]["msgBacklog"], 0, 60)
        for receiver in receiving:
            receiver.stop()
        _leave(consumers)
        assert _stats(root, "rest-stream")["bill"] == {"consumerCount": 0, "type": "STREAM", "msgBacklog": 0}
    assert (sending.faults(), received.reordered()) == ([], [])
    assert root.delete(f"{SPACE}/rest-stream?force=true").status_code == NO_CONTENT


def _stats(client: httpx.Client, topic: str) -> dict[str, Any]:
    """Return the statistics of a topic's subscriptions."""
    return client.get(f"{SPACE}/{topic}/stats").json()["subscriptions"]


def _of_new_segments(received: Arrivals) -> bool:
    return {2, 3} <= received.segments


def _leave(consumers: list[StreamConsumer]) -> None:
    for consumer in consumers:
        consumer.close()


def test_the_address_in_the_layout(open_gateway: OpenGateway, own_port: int, stack: Stack) -> None:
    """Consumers find the gateway of a topic in its layout, without being configured with its address."""
    gateway = open_gateway(port=str(own_port), public_url=f"http://127.0.0.1:{own_port}")
    with operator(gateway.url) as anybody, ScalableClient(stack.broker_url) as client:
        put(anybody, f"{SPACE}/rest-found")
        put(anybody, f"{SPACE}/rest-found/subscriptions/bill")
        consumer = client.subscribe_stream(
            "persistent://public/default/rest-found", "bill", ConsumerOptions(consumer_name="one")
        )
        producer = client.create_producer("persistent://public/default/rest-found")
        producer.send(b"hello", partition_key="k")
        assert consumer.receive(30_000).data() == b"hello"
        consumer.close()
        assert anybody.delete(f"{SPACE}/rest-found?force=true").status_code == NO_CONTENT


def test_two_gateways(open_gateway: OpenGateway, stack: Stack) -> None:
    """Each gateway serves topics that the other one created, and consumers use the one that still runs."""
    gone, remaining = open_gateway(), open_gateway()
    topic = "persistent://public/default/rest-two"
    with (
        operator(gone.url) as first,
        operator(remaining.url) as second,
        ScalableClient(stack.broker_url, ClientOptions(controller_url=f"{gone.url},{remaining.url}")) as client,
    ):
        put(first, f"{SPACE}/rest-two?numInitialSegments=2")
        put(second, f"{SPACE}/rest-two/subscriptions/bill")
        consumers = {
            name: client.subscribe_stream(topic, "bill", ConsumerOptions(consumer_name=name)) for name in ("a", "b")
        }
        wait_until_equal("a segment for each", lambda: _read(consumers), {"a": [0], "b": [1]}, 90)
        gone.kill()
        assert second.post(f"{SPACE}/rest-two/split/1").status_code == NO_CONTENT
        consumers["c"] = client.subscribe_stream(topic, "bill", ConsumerOptions(consumer_name="c"))
        wait_until_equal("a segment for each of three", lambda: _read(consumers), {"a": [0], "b": [2], "c": [3]}, 90)
        consumers.pop("a").close()
        wait_until_equal("its segments to be read", lambda: _read(consumers), {"b": [0, 3], "c": [2]}, 90)
        _leave([*consumers.values()])
        assert second.delete(f"{SPACE}/rest-two?force=true").status_code == NO_CONTENT


def _read(consumers: Mapping[str, StreamConsumer]) -> dict[str, list[int]]:
    return {name: [segment.id for segment in consumer.assignment.segments] for name, consumer in consumers.items()}


def test_tls_and_tokens(
    gateway: GatewayProcess, authority: Authority, tokens: Path, root: httpx.Client, stack: Stack
) -> None:
    """A client without trust, TLS or a valid token gets nothing; a token counts once it is in the file."""
    port = urlsplit(gateway.url).port
    with operator(gateway.url) as stranger, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.get(SPACE)
    with operator(f"http://127.0.0.1:{port}") as plain, pytest.raises(httpx.TransportError):
        plain.get(SPACE)
    verify = str(authority.cert_file)
    with operator(gateway.url, verify) as anonymous, operator(gateway.url, verify, CONSUMER) as consumer:
        assert anonymous.get(SPACE).status_code == HTTPStatus.UNAUTHORIZED
        assert consumer.get(SPACE).status_code == HTTPStatus.OK
        assert consumer.get("scalable/public/other").status_code == HTTPStatus.FORBIDDEN
        refused = consumer.put(f"{SPACE}/rest-refused")
        assert (refused.status_code, "scope=" in refused.headers["WWW-Authenticate"]) == (HTTPStatus.FORBIDDEN, True)
    with operator(gateway.url, verify, "new-token") as new:
        assert new.get(SPACE).status_code == HTTPStatus.UNAUTHORIZED
        tokens.write_text(tokens.read_text() + token_entry("new-token", "client", "public", name="new"))
        assert new.get(SPACE).status_code == HTTPStatus.OK
    put(root, f"{SPACE}/rest-denied")
    with (
        ScalableClient(
            stack.broker_url,
            ClientOptions(token="unknown-token", tls_trust_certs_file_path=verify, controller_url=gateway.url),
        ) as client,
        pytest.raises(errors.AuthenticationFailed, match="unknown token"),
    ):
        client.subscribe_stream("persistent://public/default/rest-denied", "bill")
    root.delete(f"{SPACE}/rest-denied")
    log = gateway.log.read_text()
    assert not [secret for secret in (ROOT, CONSUMER, "new-token", "unknown-token") if secret in log]


@pytest.mark.exhaustive
def test_a_thousand_joins(
    gateway: GatewayProcess, authority: Authority, record_property: Callable[[str, object], None]
) -> None:
    """A thousand consumers that join at once, return at once and leave at once have their answers."""
    joins = measure(gateway.url, "public/default/rest-joins", 1000, token=ROOT, authorities=str(authority.cert_file))
    for name, wave in (("join", joins.join), ("return", joins.return_), ("leave", joins.leave)):
        record_property(f"{name}_seconds", wave.seconds)
        assert wave.answered == 1000, f"{name}: {wave}"


def test_a_client_that_disconnects(open_gateway: OpenGateway) -> None:
    """A split continues when the client that requested it has gone."""
    gateway = open_gateway()
    with operator(gateway.url) as anybody:
        put(anybody, f"{SPACE}/rest-gone")
        split_and_disconnect(gateway.url, "rest-gone")
        wait_until_equal("the split", lambda: layout_of(anybody, "rest-gone").epoch, 1, 60)
        assert anybody.delete(f"{SPACE}/rest-gone").status_code == NO_CONTENT


def test_a_stop_completes_requests(open_gateway: OpenGateway, environment: Environment) -> None:
    """A gateway that is asked to stop answers the requests that it has begun, and exits without an error."""
    gateway = open_gateway()
    with operator(gateway.url) as anybody, ThreadPoolExecutor() as pool:
        put(anybody, f"{SPACE}/rest-drain")
        split = pool.submit(anybody.post, f"{SPACE}/rest-drain/split/0")
        wait_for("the split", lambda: split.done() or is_splitting(environment, "rest-drain"), 30)
        gateway.ask_to_stop()
        assert gateway.wait() == 0, gateway.story
        assert split.result().status_code == NO_CONTENT


@pytest.mark.exhaustive
def test_a_worker_that_dies(open_gateway: OpenGateway, environment: Environment) -> None:
    """Changes that a worker's death interrupts are answered once another one has continued with them."""
    gateway = open_gateway()
    with operator(gateway.url) as anybody:
        put(anybody, f"{SPACE}/rest-worker")
        with ThreadPoolExecutor() as pool:
            split = pool.submit(anybody.post, f"{SPACE}/rest-worker/split/0")
            wait_for("the split", lambda: split.done() or is_splitting(environment, "rest-worker"), 30)
            environment.worker.restart()
            assert split.result().status_code == NO_CONTENT
        assert layout_of(anybody, "rest-worker").epoch == 1
        deleted = anybody.delete(f"{SPACE}/rest-worker")
        assert deleted.status_code == NO_CONTENT, deleted.text


@pytest.mark.exhaustive
def test_an_outage_of_temporal(open_gateway: OpenGateway, environment: Environment) -> None:
    """Without Temporal the gateway is alive, but not ready, and sets Retry-After; afterwards it serves as before."""
    slow, gateway = open_gateway(), open_gateway(change_deadline="PT3S", consumer_deadline="PT3S")
    temporal = environment.stack["temporal"]
    with operator(slow.url) as anybody:
        put(anybody, f"{SPACE}/rest-outage")
    with operator(gateway.url) as anybody:
        temporal.kill()
        try:
            for method, path in (("GET", ""), ("POST", "/split/0"), ("DELETE", "/subscriptions/a/consumers/b")):
                answer = anybody.request(method, f"{SPACE}/rest-outage{path}")
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2"), answer.text
            assert httpx.get(f"{gateway.url}/healthz", timeout=30).status_code == HTTPStatus.OK
            assert httpx.get(f"{gateway.url}/readyz", timeout=30).status_code == HTTPStatus.SERVICE_UNAVAILABLE
        finally:
            temporal.start()
        wait_for("readiness", lambda: httpx.get(f"{gateway.url}/readyz", timeout=30).is_success, 60)
        wait_for("the layout", lambda: anybody.get(f"{SPACE}/rest-outage").is_success, 60)
    with operator(slow.url) as anybody:
        wait_for("the end", lambda: anybody.delete(f"{SPACE}/rest-outage").is_success, 120)


def split_and_disconnect(url: str, topic: str) -> None:
    """Ask for a split, and close the connection before there is an answer."""
    parts = urlsplit(url)
    path = f"/admin/v2/{SPACE}/{topic}/split/0"
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())


def is_splitting(environment: Environment, topic: str) -> bool:
    """Return whether the controller of a topic has begun a split."""
    operator = environment.operator
    workflow_id = controller_id(environment.stack.state.spec.cluster, f"persistent://public/default/{topic}")
    handle = operator.client.get_workflow_handle(workflow_id)
    status = ControllerStatus.model_validate(operator.wait(handle.query("status"), 30))
    return status.pending is not None
