"""With credentials or TLS settings, nothing that a server says leads to a link without TLS, or to a host not listed.

Registrations, redirects, lookups, metadata of issuers and refused certificates are generated. Doubles of the network
record each connection right where it would be opened.
"""

from __future__ import annotations

import json
import ssl
import string
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from clients.errors import StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token
from clients.pulsar.admin.brokers import registered_service_url, registered_urls
from clients.pulsar.admin.http import Endpoint, HttpSession
from clients.pulsar.names import stored_topic
from clients.pulsar.wire import connection as wire_connection
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.lookup import connect
from clients.tls import Tls
from models.destinations import Destinations
from pulsar_wire import pool as wire_pool
from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access, Address
from pulsar_wire.errors import ConnectionLost, PulsarError, TlsFailed
from pulsar_wire.pool import Pool

LISTED = ("b1.prod.example", "b2.prod.example")
STRANGERS = ("evil.example", "b1.prod.example.evil.example")
HOSTS = Destinations((LISTED[0], ".prod.example"))
SECRET = "a-token-of-a-superuser"
TOKEN = Token(SecretStr(SECRET))
TOPIC = stored_topic("persistent://a/b/c")

PORT = 8443
_hosts = st.sampled_from([*LISTED, *STRANGERS])
WEB = [f"{scheme}://{host}:{PORT}" for scheme in ("http", "https") for host in (*LISTED, *STRANGERS)]
BINARY = [f"{scheme}://{host}:{PORT}" for scheme in ("pulsar", "pulsar+ssl") for host in (*LISTED, *STRANGERS)]
_web, _binary = st.sampled_from(WEB), st.sampled_from(BINARY)
_odd = st.sampled_from(["", "HTTP://b1.prod.example", "ftp://b1.prod.example", "//evil.example", "http:b1", 7, None])
_redirect = st.tuples(st.sampled_from([301, 302, 303, 307, 308]), _web | st.sampled_from(["//evil.example/x", "/y"]))
_plain_answers = st.sampled_from(["ok", "refused", "denied"]) | _redirect
_tls_answers = _plain_answers | st.just("untrusted")
_webs = st.fixed_dictionaries({url: _tls_answers if url.startswith("https:") else _plain_answers for url in WEB})
_lookups = st.fixed_dictionaries(
    {
        "response": st.sampled_from(["Connect", "Redirect"]),
        "brokerServiceUrl": _binary,
        "brokerServiceUrlTls": _binary,
        "proxy_through_service_url": st.booleans(),
    }
)
_brokers = st.fixed_dictionaries(dict.fromkeys(BINARY, _lookups | st.sampled_from(["refused", "untrusted"])))


class TrustWithoutFiles(Tls):
    """TLS settings that are mandatory, and whose files need not exist."""

    @property
    def configured(self) -> bool:
        """Whether TLS was configured."""
        return True


ONLY_TOKEN = AdminAccess(auth=TOKEN, destinations=HOSTS)
TRUST = AdminAccess(tls=TrustWithoutFiles())
ACCESSES = [ONLY_TOKEN, TRUST, replace(TRUST, destinations=HOSTS), replace(ONLY_TOKEN, tls=TRUST.tls)]


def wrong(access: AdminAccess, host: str, *, encrypted: bool) -> bool:
    """Return whether a connection must not have been opened."""
    return not encrypted or (bool(access.destinations.hosts) and host not in LISTED)


def server(url: httpx.URL) -> str:
    """Return the address of a server."""
    return f"{url.scheme}://{url.netloc.decode()}"


class Web(httpx.BaseTransport):
    """A network of web servers whose answers are generated.

    Attributes:
        opened: addresses of the requests, as they would reach the network.
        answers: by the address of the server; by default success.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.opened: list[httpx.URL] = []
        self.answers = answers

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        self.opened.append(request.url)
        answer = self.answers.get(server(request.url), "ok")
        if isinstance(answer, tuple):
            code, location = cast("tuple[int, str]", answer)
            return httpx.Response(code, headers={"location": location}, request=request)
        if answer == "refused":
            raise httpx.ConnectError("refused", request=request)
        if answer == "untrusted":
            cause = ssl.SSLCertVerificationError("self-signed")
            cause.verify_message = "self-signed"
            raise httpx.ConnectError("untrusted", request=request) from cause
        return httpx.Response({"ok": 200, "denied": 401}[answer], json={}, request=request)


@given(
    access=st.sampled_from(ACCESSES),
    registration=st.dictionaries(
        st.sampled_from(["webServiceUrl", "webServiceUrlTls", "httpUrl", "httpUrlTls"]), _web | _odd
    ),
    answers=_webs,
    path=st.sampled_from(["/x", "/persistent/a/b/c/stats"]),
    method=st.sampled_from(["get", "post", "put", "delete"]),
)
@example(ONLY_TOKEN, {"webServiceUrl": f"http://{LISTED[0]}:{PORT}"}, {}, "/x", "get").via("a broker without TLS")
@example(ONLY_TOKEN, {"webServiceUrlTls": f"http://{LISTED[0]}:{PORT}"}, {}, "/x", "get").via(
    "a slot for TLS with a plain address"
)
@example(
    ONLY_TOKEN,
    {"webServiceUrlTls": f"https://{LISTED[0]}:{PORT}", "webServiceUrl": f"http://{LISTED[0]}:{PORT}"},
    {f"https://{LISTED[0]}:{PORT}": (307, f"http://{LISTED[0]}:{PORT}")},
    "/x",
    "get",
).via("a redirect from TLS to a plain address")
def test_registrations_and_redirects(
    access: AdminAccess, registration: dict[str, Any], answers: dict[str, Any], path: str, method: str
) -> None:
    """Requests have TLS and go to listed hosts, or end as a typed error, for all that brokers register and answer."""
    web = Web(answers)
    with HttpSession(access, transport=web) as session:
        for _ in range(2):
            # The second request may go to the owner that the first one has found.
            with typed_errors():
                endpoint = Endpoint(session, registered_urls(json.dumps(registration), access))
                getattr(endpoint, method)(path)
    assert [url for url in web.opened if wrong(access, url.host, encrypted=url.scheme == "https")] == []


@given(
    access=st.sampled_from(ACCESSES),
    urls=st.lists(_web, min_size=1, max_size=4),
    answers=_webs,
    allow_plain=st.booleans(),
)
@example(
    ONLY_TOKEN,
    [f"https://{LISTED[0]}:{PORT}", f"http://{LISTED[1]}:{PORT}"],
    {f"https://{LISTED[0]}:{PORT}": "untrusted"},
    True,
).via("a plain address after a certificate that is not trusted")
@example(
    ONLY_TOKEN,
    [f"https://{LISTED[0]}:{PORT}", f"https://{LISTED[1]}:{PORT}", f"http://{LISTED[1]}:{PORT}"],
    {f"https://{LISTED[0]}:{PORT}": "refused", f"https://{LISTED[1]}:{PORT}": "untrusted"},
    True,
).via("the same where another broker was away before")
def test_addresses_of_an_input(
    access: AdminAccess, urls: list[str], answers: dict[str, Any], allow_plain: bool
) -> None:
    """Addresses of an input are held to the same; where plain links are allowed, none follows a refused certificate."""
    access = replace(access, destinations=access.destinations._replace(allow_plain=allow_plain))
    web = Web(answers)
    with HttpSession(access, transport=web) as session, typed_errors():
        Endpoint(session, urls).get("/x")
    bad = [url for url in web.opened if wrong(access, url.host, encrypted=allow_plain or url.scheme == "https")]
    assert bad == []
    untrusted = [index for index, url in enumerate(web.opened) if answers.get(server(url)) == "untrusted"]
    assert [url for url in web.opened[min(untrusted, default=99) :] if url.scheme == "http"] == []


@contextmanager
def typed_errors() -> Generator[None]:
    """Expect success or a typed error, which does not show the token."""
    said = ""
    try:
        yield
    except (StoreError, PulsarError) as error:
        said = str(error)
    assert SECRET not in said


@given(
    issuer=_web,
    configured=st.sampled_from(["issuer_url", "token_url"]),
    endpoint=_web,
    answers=_webs,
)
def test_client_secrets_of_oauth2(issuer: str, configured: str, endpoint: str, answers: dict[str, Any]) -> None:
    """The client's secret is sent over TLS only, to the configured server or to a listed host."""
    sent: list[httpx.URL] = []

    class Issuer(Web):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if b"the-secret" in request.read():
                sent.append(request.url)
            if request.method == "GET" and request.url.path.endswith("/openid-configuration"):
                return httpx.Response(200, json={"token_endpoint": f"{endpoint}/token"}, request=request)
            super().handle_request(request)
            return httpx.Response(200, json={"access_token": SECRET}, request=request)

    with TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        file.write_text(json.dumps({"client_id": "x", "client_secret": "the-secret-of-the-client"}))
        options = OAuth2(file, destinations=HOSTS)._replace(**{configured: issuer})
        auth = ClientCredentials(options, transport=Issuer(answers))
        session = HttpSession(AdminAccess(auth=auth, destinations=HOSTS), transport=Web({}))
        with session, typed_errors():
            Endpoint(session, [f"https://{LISTED[0]}:{PORT}"]).get("/x")
    own = httpx.URL(issuer).host
    assert [url for url in sent if url.scheme != "https" or url.host not in (*LISTED, own)] == []


# Binary protocol ----------------------------------------------------------------------------------------------------


class Binary:
    """A network of brokers whose answers to lookups are generated.

    Attributes:
        opened: addresses of the connections, as they would be opened.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.opened: list[Address] = []
        self._answers = answers

    def connection(self, address: Address, access: Access, *, proxy_to: str = "", own_thread: bool = True) -> Any:
        """Open a connection, as the class `Connection` does."""
        del proxy_to, own_thread
        access.check_host(address.host)
        self.opened.append(address)
        answer = self._answers.get(str(address), {"response": "Connect"})
        if answer == "refused":
            raise ConnectionLost("refused")
        if answer == "untrusted":
            raise TlsFailed("self-signed")
        return _Opened(address, answer)


class _Opened:
    lost = None

    def __init__(self, address: Address, answer: dict[str, Any]) -> None:
        self.address = address
        own = {"brokerServiceUrl": str(address), "brokerServiceUrlTls": str(address)}
        answer = {**own, **answer}
        answer["response"] = api.CommandLookupTopicResponse.LookupType.Value(answer["response"])
        self._answer = api.CommandLookupTopicResponse(request_id=1, **answer)

    def ask(self, *_: object) -> api.CommandLookupTopicResponse:
        """Answer a lookup."""
        return self._answer

    def close(self) -> None:
        """Close the connection."""


@given(
    access=st.sampled_from(ACCESSES),
    registration=st.dictionaries(st.sampled_from(["pulsarServiceUrl", "pulsarServiceUrlTls"]), _binary | _odd),
    answers=_brokers,
)
@example(
    ONLY_TOKEN,
    {"pulsarServiceUrlTls": f"pulsar+ssl://{LISTED[0]}:{PORT}"},
    {
        f"pulsar+ssl://{LISTED[0]}:{PORT}": {
            "response": "Redirect",
            "brokerServiceUrlTls": f"pulsar://{LISTED[1]}:{PORT}",
        }
    },
).via("a lookup that leads from TLS to a plain address")
def test_lookups(access: AdminAccess, registration: dict[str, Any], answers: dict[str, Any]) -> None:
    """Connections have TLS and go to listed hosts, for all that brokers register and answer to lookups."""
    network = Binary(answers)
    wire = WireAccess.of(access)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_connection, "Connection", network.connection)
        with typed_errors():
            connect(registered_service_url(json.dumps(registration), access), TOPIC, wire).close()
    assert [each for each in network.opened if wrong(access, each.host, encrypted=each.secure)] == []


@given(url=_binary, answers=_brokers)
def test_lookups_of_the_client_library(url: str, answers: dict[str, Any]) -> None:
    """A client whose service URL has TLS opens no connection without, and none to a host that it was not named."""
    network = Binary(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_pool, "Connection", network.connection)
        pool = Pool(url, Access(token=SECRET, token_hosts=LISTED))
        with typed_errors():
            pool.to_owner(str(TOPIC))
        assert [each for each in network.opened if each.host not in LISTED or (pool.secure and not each.secure)] == []


# Rule ---------------------------------------------------------------------------------------------------------------


@given(
    hosts=st.lists(st.sampled_from(["", ".prod.example", LISTED[0], "10.0.0.0/8"]), max_size=2),
    host=st.text(string.ascii_letters + string.digits + ".-:[]_", min_size=1) | _hosts,
    encrypted=st.booleans(),
    secret=st.booleans(),
    tls=st.booleans(),
)
def test_the_rule(hosts: list[str], host: str, encrypted: bool, secret: bool, tls: bool) -> None:
    """A link without TLS that carries a secret, or for which TLS was configured, always has an objection."""
    destinations = Destinations(tuple(filter(None, hosts)))
    objection = destinations.objection(host, encrypted=encrypted, secret=secret, tls=tls)
    assert objection or encrypted or not (secret or tls)
    assert objection or not secret or destinations.hosts
    assert not objection or "cure: " in objection
