"""Servers serve the right clients, and neither one without TLS nor one without credentials or rights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clients.bookie_access import BookieAccess
from clients.bookkeeper.ledgers import LedgerDirectory
from clients.bookkeeper.pool import Bookies
from clients.errors import StoreDenied, StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.errors import AdminError
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.lookup import connect
from clients.stores import Access, StoreAccess, open_cas_reader
from clients.tls import Tls
from models.ledger_store import parse_ledger_store_uri
from models.store_url import parse_store_url
from pulsar_devstack.hardening import APPLICATION
from pulsar_devstack.plain_links import plain_ports
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.traffic.runner import Traffic
from tests.support.hardened import HardenedEnvironment, secrets
from tests.support.packet_capture import why_not

NAMESPACE = "links/space"
TOPIC = f"persistent://{NAMESPACE}/topic"


@pytest.fixture(scope="module", autouse=True)
def namespace(hardened: HardenedEnvironment) -> None:
    """Create the namespace."""
    hardened.create_namespace(hardened.blue, NAMESPACE)


def test_clients_with_credentials_are_served(hardened: HardenedEnvironment) -> None:
    """Messages pass through brokers and bookies."""
    with Traffic.here(hardened.blue.broker_url, [TOPIC], options=hardened.client_options()) as traffic:
        traffic.wait_for_more(20)
        assert traffic.verify() >= 20


def test_no_packet_has_a_secret(hardened: HardenedEnvironment) -> None:
    """Packets of all links, those of the start included, hold no password, token or key; the capture itself works."""
    if hardened.capture is None:
        pytest.skip(why_not())
    with Traffic.here(hardened.blue.broker_url, [TOPIC], options=hardened.client_options()) as traffic:
        traffic.wait_for_more(20)
    assert not hardened.capture.find([secret.encode() for secret in secrets(hardened.hardening)])


def test_no_port_serves_plain_clients(hardened: HardenedEnvironment) -> None:
    """Ports of brokers, bookies and ZooKeepers close connections without TLS."""
    assert plain_ports(hardened.blue) == []
    assert plain_ports(hardened.green) == []


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("tls", "it speaks TLS only"),
        ("certificate", "it refuses our certificate"),
        ("login", "only sessions with a login"),
    ],
)
def test_zookeeper_refuses(hardened: HardenedEnvironment, missing: str, why: str) -> None:
    """A client without TLS, without a certificate or without a login."""
    changes: dict[str, dict[str, Any]] = {
        "tls": {"tls": None},
        "certificate": {"tls": Tls(str(hardened.hardening.authorities))},
        "login": {"login": None},
    }
    plain = hardened.access.common.zookeeper.destinations._replace(allow_plain=True)
    changed = replace(hardened.access.common.zookeeper, destinations=plain, **changes[missing])
    for url in (hardened.blue.zk_url, hardened.green.second_zk_url):
        with (
            pytest.raises(StoreError, match=why),
            open_cas_reader(parse_store_url(url), Access(StoreAccess(changed, timeout=10))) as reader,
        ):
            reader.get("/ledgers")


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        ("", r"refuses us: set .* \(status 502\)"),
        ("no certificate", "does not answer"),
        ("server", "refuses our certificate"),
    ],
    ids=["plain", "no certificate", "no role"],
)
def test_bookies_refuse(hardened: HardenedEnvironment, certificate: str, why: str) -> None:
    """A client without TLS, without a certificate, or with a certificate that does not name the role."""
    authorities, own = str(hardened.hardening.authorities), hardened.hardening.folder / f"{certificate}.chain.pem"
    tls = Tls(authorities, str(own) if own.exists() else None) if certificate else None
    for uri in (hardened.blue.bookkeeper_uri, hardened.blue.second_bookkeeper_uri):
        with (
            LedgerDirectory(parse_ledger_store_uri(uri).url, hardened.access) as directory,
            Bookies(directory.bookies, access=BookieAccess(tls)) as bookies,
        ):
            (bookie,) = directory.bookies()
            with pytest.raises(StoreError, match=why):
                bookies.free_space(bookie)


def test_admin_interface_refuses(hardened: HardenedEnvironment) -> None:
    """Plain HTTP, a request without a token, and one of an application."""
    (url,) = hardened.blue.admin_urls
    tls = Tls(str(hardened.hardening.authorities))
    for address, access, why in (
        (url.replace("https:", "http:"), AdminAccess(30), "Server disconnected"),
        (url, AdminAccess(30, tls=tls), "401: Authentication required"),
        (url, hardened.hardening.admin_access(APPLICATION), "401: Unauthorized"),
    ):
        with pytest.raises(AdminError, match=why), StackAdmin(address, access=access) as admin:
            admin.brokers.runtime_configuration()


@pytest.mark.parametrize(
    ("credentials", "why"),
    [({"auth": None}, "Failed to authenticate"), ({}, "not authorized to Lookup")],
    ids=["no token", "no rights"],
)
def test_brokers_refuse(hardened: HardenedEnvironment, credentials: dict[str, Any], why: str) -> None:
    """A client without a token, and one that has no rights on a topic."""
    access = WireAccess.of(replace(hardened.hardening.admin_access(APPLICATION), **credentials))
    with pytest.raises(StoreDenied, match=why):
        connect(hardened.blue.broker_url, TopicName.parse("persistent://public/default/topic"), access)
