"""A broker that asks for tokens and speaks TLS."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr
from scalable_client.tests.support.fake_broker import unheard
from scalable_client.tests.support.topics import take_all

from activities.pulsar.registrations import brokers
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from clients.stores import Access, open_reader
from clients.tls import Tls
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_scalable.errors import AuthenticationFailed, ConnectionLost, NotAuthorized, ScalableError
from pulsar_scalable.native import ConsumerKind, InitialPosition, NativeClient
from pulsar_scalable.native.consumer import SegmentConsumerOptions
from pulsar_wire.access import Access as WireAccess
from pulsar_wire.access import tls_context
from tests.support.clients.certificates import Authority
from tests.support.clients.destinations import LOOPBACK
from tests.support.clients.pulsar_auth import SUPERUSER, TokenKey, tls_settings
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

NAME = TopicName.parse("public/default/secure")


@dataclass(frozen=True)
class Secure:
    """The broker.

    Attributes:
        url: with TLS.
        plain_url: without.
        trust: file of the authority.
        key: signs tokens.
        other_key: signs tokens that it does not accept.
    """

    url: str
    plain_url: str
    trust: str
    key: TokenKey
    other_key: TokenKey

    @contextmanager
    def client(self, role: str = SUPERUSER, key: TokenKey | None = None) -> Generator[NativeClient]:
        """Create a client with a token."""
        token = (key or self.key).token(role)
        with NativeClient(
            self.url,
            WireAccess(token=lambda: token, tls=tls_context(trust_certs_file=self.trust), operation_timeout=15),
        ) as client:
            yield client


@pytest.fixture(scope="module")
def secure(make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Secure:
    """One broker with a scalable topic."""
    folder: Path = tmp_path_factory.mktemp("authority")
    key, authority = TokenKey(), Authority(toolchain, folder)
    settings = {
        **key.broker_settings(),
        **tls_settings(authority, authority.identity("broker", "127.0.0.1")),
        "brokerServicePortTls": "0",
    }
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, broker_settings=settings))
    with open_reader(parse_store_url(stack.metadata_url), Access()) as reader:
        (broker,) = brokers(reader)
    config = json.loads(broker.data)
    trust = str(authority.cert_file)
    access = AdminAccess(30, Token(SecretStr(key.token(SUPERUSER))), Tls(trust), LOOPBACK)
    with PulsarAdmin.open(access, [str(config["webServiceUrlTls"])]) as admin:
        admin.scalable_topics.create(NAME, 2)
    return Secure(str(config["pulsarServiceUrlTls"]), stack.broker_url, trust, key, TokenKey())


def test_every_connection_uses_tls(secure: Secure) -> None:
    """Layouts, registrations and messages, many of them large, use TLS."""
    topic = f"topic://{NAME.local_path}"
    with secure.client() as client:
        watch = client.watch(topic, lambda _: None)
        registration = client.register(topic, "sub", "me", ConsumerKind.STREAM, lambda _: None)
        assert len(registration.assignment.segments) == 2
        segment = watch.layout.topic_of(watch.layout.active[0])
        consumer = client.subscribe(segment, "all", SegmentConsumerOptions(initial_position=InitialPosition.Earliest))
        producer = client.create_producer(segment)
        for number in range(50):
            producer.send_async(b"%d" % number * 100_000, unheard)
        producer.flush()
        messages = take_all(consumer, 50)
        assert [message.data() for message in messages] == [b"%d" % number * 100_000 for number in range(50)]


def test_wrong_credentials(secure: Secure) -> None:
    """An unknown token and a token without rights raise different errors."""
    topic = f"topic://{NAME.local_path}"
    with secure.client(key=secure.other_key) as client, pytest.raises(AuthenticationFailed):
        client.look_up(topic)
    with secure.client("stranger") as client:
        with pytest.raises(NotAuthorized):
            client.look_up(topic)
        with pytest.raises(ScalableError):
            client.create_producer(f"segment://{NAME.local_path}/0000-7fff-0")


def test_untrusted_certificates(secure: Secure) -> None:
    """Without its authority, the broker is not believed."""
    with (
        NativeClient(secure.url, WireAccess(token="x")) as client,
        pytest.raises(ConnectionLost, match=r"(?i)certificate"),
    ):
        client.look_up(f"topic://{NAME.local_path}")
