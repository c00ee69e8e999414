"""How real brokers are reached: TLS with client certificates, tokens, OAuth2, and redirects from one to the other."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from pydantic import SecretStr

from activities.pulsar.brokers import BrokerView
from activities.pulsar.registrations import Service, brokers
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminDenied, AdminNoCredentials, AdminUnreachable, AdminUntrusted
from clients.pulsar.names import TopicName
from clients.stores import Access, open_reader
from clients.tls import Tls
from models.store_url import parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.server_releases import chosen_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.certificates import Authority
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.clients.pulsar_auth import SUPERUSER, TokenEndpoint, TokenKey, tls_settings
from tests.support.stacks import MakeStack

TOPICS = 100
"""More than enough for topics in bundles of both brokers."""


class Cluster(NamedTuple):
    """Two brokers that speak HTTP and, to whom has a certificate, HTTPS; both ask for tokens.

    Attributes:
        stack: they run in it.
        registered: their registrations.
        key: signs their tokens.
        tls: what a client needs for TLS.
    """

    stack: Stack
    registered: list[Service]
    key: TokenKey
    tls: Tls

    @property
    def secure(self) -> list[str]:
        """Addresses by HTTPS."""
        return [str(json.loads(broker.data)["webServiceUrlTls"]) for broker in self.registered]

    def access(self, *, tls: Tls | None = None, auth: httpx.Auth | None = None) -> AdminAccess:
        """Return all that a superuser needs, or something else."""
        auth = auth or Token(SecretStr(self.key.token(SUPERUSER)))
        return AdminAccess(30, auth, self.tls if tls is None else tls, LOOPBACK_PLAIN)


@pytest.fixture(scope="module")
def cluster(make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Brokers and clients share one certificate, which names 127.0.0.1."""
    authority, key = Authority(toolchain, tmp_path_factory.mktemp("certificates")), TokenKey()
    identity = authority.identity("pulsar", "127.0.0.1")
    settings = {**key.broker_settings(), **tls_settings(authority, identity, ask_for_certificate=True)}
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, brokers=2, cluster="secure", broker_settings=settings))
    reader = open_reader(parse_store_url(stack.zk_url), Access())
    registered = brokers(reader)
    reader.close()
    tls = Tls(str(authority.cert_file), str(identity.cert_file), str(identity.key_file))
    return Cluster(stack, registered, key, tls)


@pytest.fixture
def endpoint(cluster: Cluster, tmp_path: Path) -> Generator[TokenEndpoint]:
    """An OAuth2 server whose tokens the brokers accept."""
    with TokenEndpoint(cluster.key, tmp_path) as endpoint:
        yield endpoint


def may_list_tenants(urls: list[str], access: AdminAccess) -> bool:
    """Return whether the brokers accept these credentials as a superuser."""
    with PulsarAdmin.open(access, urls) as admin:
        return "public" in admin.tenants.names()


def oauth2(endpoint: TokenEndpoint) -> OAuth2:
    """Return the OAuth2 settings of an operator for this endpoint."""
    return OAuth2(endpoint.key_file, issuer_url=endpoint.issuer_url, destinations=LOOPBACK_PLAIN)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_call_for_a_topic_reaches_its_owner(cluster: Cluster, secure: bool) -> None:
    """Each broker sends calls for topics of the other one there; body, method and token arrive, by HTTPS too."""
    urls = cluster.secure if secure else cluster.stack.admin_urls
    first, second = (PulsarAdmin.open(cluster.access(), [url]) for url in urls)
    owners: set[tuple[str, ...]] = set()
    both = {(url,) for url in cluster.secure}
    with first, second:
        for number in range(TOPICS):
            if owners == both:
                break
            topic = TopicName.parse(f"redirected-{secure}-{number}")
            first.topics.create(topic, {"number": str(number)})
            assert second.topics.properties(topic) == {"number": str(number)}
            owners.add(tuple(second.topics.owner_urls(topic)))
            second.topics.delete(topic)
    assert owners == both


def test_a_broker_that_is_down_is_passed_over(cluster: Cluster) -> None:
    """If no broker listens at an address, the next one is asked; if none listens, the error names the address."""
    unused = "http://127.0.0.1:9"
    with PulsarAdmin.open(cluster.access(), [unused, *cluster.stack.admin_urls]) as admin:
        admin.namespaces.set_properties("public/default", {"asked": "second"})
        assert admin.namespaces.properties("public/default") == {"asked": "second"}
    with PulsarAdmin.open(cluster.access(), [unused]) as admin, pytest.raises(AdminUnreachable, match=unused) as caught:
        admin.tenants.names()
    assert not caught.value.sent


def test_a_superuser_needs_the_right_token(cluster: Cluster) -> None:
    """No token, an expired one and another role's are refused with 401 or 403, and the type says so."""
    tokens = [cluster.key.token(SUPERUSER, life=-60), cluster.key.token("stranger"), "nonsense"]
    for auth in (None, *(Token(SecretStr(token)) for token in tokens)):
        access = replace(cluster.access(), auth=auth)
        with pytest.raises(AdminDenied) as caught:
            may_list_tenants(cluster.secure, access)
        assert caught.value.status in (401, 403)
        assert all(token not in str(caught.value) for token in tokens)


def test_a_token_file_is_followed(cluster: Cluster, tmp_path: Path) -> None:
    """A running client uses the token that the file has now, without a restart."""
    file = tmp_path / "token"
    file.write_text(cluster.key.token("stranger"))
    with PulsarAdmin.open(cluster.access(auth=TokenFile(file)), cluster.secure) as admin:
        with pytest.raises(AdminDenied):
            admin.tenants.names()
        fresh = tmp_path / "fresh"
        fresh.write_text(f"{cluster.key.token(SUPERUSER)}\n")
        fresh.replace(file)
        assert "public" in admin.tenants.names()


@pytest.mark.parametrize("explicit", [False, True], ids=["issuer", "token endpoint"])
def test_oauth2_tokens_are_accepted(cluster: Cluster, endpoint: TokenEndpoint, explicit: bool) -> None:
    """Brokers accept the token that the endpoint gives for the key file; it is asked once for many requests."""
    options = oauth2(endpoint)._replace(audience="urn:pulsar", scope="admin")
    if explicit:
        options = options._replace(issuer_url="", token_url=endpoint.token_url)
    access = cluster.access(auth=ClientCredentials(options))
    for _ in range(3):
        assert may_list_tenants(cluster.secure, access)
    (form,) = endpoint.asked
    assert (form["grant_type"], form["audience"], form["scope"]) == ("client_credentials", "urn:pulsar", "admin")


def test_an_oauth2_token_that_a_broker_refuses_is_renewed(cluster: Cluster, endpoint: TokenEndpoint) -> None:
    """A token that ended before its time is replaced once, without an error."""
    endpoint.life = -60
    access = cluster.access(auth=ClientCredentials(oauth2(endpoint)))
    with pytest.raises(AdminDenied):
        may_list_tenants(cluster.secure, access)
    assert len(endpoint.asked) == 2
    endpoint.life = 3600
    assert may_list_tenants(cluster.secure, access)
    assert len(endpoint.asked) == 3


def test_an_oauth2_server_that_refuses_is_named(cluster: Cluster, endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """A wrong secret and an issuer that is down are different errors, and the secret is not shown."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"client_id": "migrate", "client_secret": "guessed"}))
    options = oauth2(endpoint)
    with pytest.raises(AdminDenied, match="no such client") as caught:
        may_list_tenants(cluster.secure, cluster.access(auth=ClientCredentials(options._replace(key_file=wrong))))
    assert caught.value.url == endpoint.token_url
    assert "guessed" not in str(caught.value)
    down = ClientCredentials(options._replace(issuer_url="http://127.0.0.1:9"))
    with pytest.raises(AdminUnreachable):
        may_list_tenants(cluster.secure, cluster.access(auth=down))


def test_certificates_are_verified_on_both_sides(cluster: Cluster) -> None:
    """Without the CA, by a name that the certificate lacks, or without our own certificate nothing is asked."""
    ca, cert, key, _ = cluster.tls
    (port,) = {httpx.URL(url).port for url in cluster.secure[:1]}
    by_name = [f"https://localhost:{port}"]
    for tls, urls, said in (
        (Tls(None, cert, key), cluster.secure, "self-signed certificate"),
        (cluster.tls, by_name, "not valid for 'localhost'"),
        (Tls(ca), cluster.secure, "CERTIFICATE"),
    ):
        with pytest.raises(AdminUntrusted, match=said):
            may_list_tenants(urls, cluster.access(tls=tls))
    assert may_list_tenants(by_name, cluster.access(tls=cluster.tls._replace(verify_hostname=False)))
    with pytest.raises(AdminNoCredentials, match="files of the TLS settings cannot be used"):
        may_list_tenants(cluster.secure, cluster.access(tls=Tls("/nowhere.pem")))


def test_https_is_not_given_up(cluster: Cluster) -> None:
    """A broker's HTTPS address comes first; a certificate that is not trusted leads to no plain one."""
    broker = cluster.registered[0]
    assert registered_urls(broker.data, cluster.access()) == cluster.secure[:1]
    with BrokerView(cluster.access()) as view:
        assert view.read(broker).version == chosen_release().version
        assert view.health(broker) == ""
        assert view.bookie_cluster(broker).url is not None
    with BrokerView(cluster.access(tls=Tls())) as view:
        assert view.read(broker).version == ""
        assert "the certificate was not accepted" in view.read(broker).why
        assert "the certificate was not accepted" in view.bookie_cluster(broker).why
    with BrokerView(AdminAccess()) as view:
        assert "the certificate was not accepted" in view.read(broker).why
