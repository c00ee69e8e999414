"""HTTP to admin interfaces, as far as no real server gives the answers: loops, downgrades, lost answers, renewals.

What a real broker does give is tested on one: tests/integration/clients/test_pulsar_admin.py.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr, TypeAdapter

from clients.errors import StoreConflict, StoreDenied, StoreNotFound, StoreProtocolError, StoreUnreachable
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.pulsar.admin.brokers import registered_service_url, registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import (
    AdminConflict,
    AdminDenied,
    AdminDestinationRefused,
    AdminError,
    AdminNoCredentials,
    AdminNotFound,
    AdminPreconditionFailed,
    AdminProtocolError,
    AdminServerError,
    AdminUnreachable,
    AdminUnsupported,
    AdminUntrusted,
)
from clients.pulsar.admin.http import Endpoint, HttpSession
from clients.tls import Tls
from models.destinations import Destinations
from tests.support.waiting import timeout_for

Answering = Callable[[httpx.Request], httpx.Response]
HOSTS = Destinations(("one", "two", "gone", "gone.too", "b"))
TOKEN = AdminAccess(auth=Token(SecretStr("secret")), destinations=HOSTS)
KEY_FILE = {"type": "client_credentials", "client_id": "me", "client_secret": "hidden"}
ISSUER = "https://issuer.example/realm"


class Servers(httpx.MockTransport):
    """Answers by host and remembers what was asked, and with which token."""

    def __init__(self, **hosts: Answering) -> None:
        self.asked: list[httpx.Request] = []
        self.tokens: list[str] = []
        self.answers = hosts
        super().__init__(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        # A request that is sent again is the same object.
        self.tokens.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        return self.answers[request.url.host.partition(".")[0]](request)

    def session(self, access: AdminAccess = TOKEN) -> HttpSession:
        """Return a session that reaches these servers only."""
        return HttpSession(access, 8, transport=self)

    def endpoint(self, *urls: str, access: AdminAccess = TOKEN) -> Endpoint:
        """Return both kinds of requests to some of them."""
        return Endpoint(self.session(access), urls)


def ok(_: httpx.Request) -> httpx.Response:
    """Return success, with JSON."""
    return httpx.Response(200, json={"fine": True})


def status(code: int, text: str = "") -> Answering:
    """Return an answer with this status."""
    return lambda _: httpx.Response(code, text=text)


def to(address: str, code: int = 307) -> Answering:
    """Return a redirect."""
    return lambda _: httpx.Response(code, headers={"location": address})


def broken(error: type[httpx.TransportError]) -> Answering:
    """Return no answer."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise error("on order of the test", request=request)

    return answer


@pytest.mark.parametrize("code", [307, 308])
def test_a_redirect_keeps_method_body_and_credentials(code: int) -> None:
    """Another host gets the same request, with the query that the redirect names."""
    servers = Servers(one=to("https://two/admin/v2/x?authoritative=true", code), two=ok)
    servers.endpoint("https://one").post("/x", {"a": 1}, {"force": True})
    first, second = servers.asked
    assert (first.method, first.url.query) == ("POST", b"force=true")
    assert (second.method, second.url.host, second.url.query) == ("POST", "two", b"authoritative=true")
    assert (second.content, second.headers["content-type"]) == (b'{"a":1}', "application/json")
    assert second.headers["authorization"] == "Bearer secret"
    assert second.headers["host"] == "two"


TOPIC, OWNED = "/persistent/t/n/topic", "https://two/admin/v2/persistent/t/n/topic/stats?authoritative=true"


def test_the_next_request_for_a_topic_goes_to_the_redirected_owner() -> None:
    """It is asked of the owner at once, with its own method and query; another topic is asked as before."""
    servers = Servers(one=to(OWNED), two=ok)
    endpoint = servers.endpoint("https://one")
    endpoint.get(f"{TOPIC}/stats")
    endpoint.put(f"{TOPIC}/unload", params={"force": True})
    endpoint.get("/persistent/t/n/topic-2/stats")
    assert [(request.method, request.url.host, request.url.path) for request in servers.asked] == [
        ("GET", "one", f"/admin/v2{TOPIC}/stats"),
        ("GET", "two", f"/admin/v2{TOPIC}/stats"),
        ("PUT", "two", f"/admin/v2{TOPIC}/unload"),
        ("GET", "one", "/admin/v2/persistent/t/n/topic-2/stats"),
        ("GET", "two", f"/admin/v2{TOPIC}/stats"),
    ]
    assert servers.asked[2].url.query == b"force=true"
    assert servers.asked[2].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("then", [broken(httpx.ConnectError), to("https://one/admin/v2/x")])
def test_a_former_owner_is_forgotten(then: Answering) -> None:
    """If the remembered owner is gone or has unloaded the topic, the configured address is used again."""
    servers = Servers(one=to(OWNED), two=ok)
    endpoint = servers.endpoint("https://one")
    endpoint.get(f"{TOPIC}/stats")
    servers.answers |= {"one": ok, "two": then}
    endpoint.put(f"{TOPIC}/unload")
    endpoint.put(f"{TOPIC}/unload")
    assert [request.url.host for request in servers.asked] == ["one", "two", "two", "one", "one"]


def test_a_change_that_an_owner_may_have_made_is_not_made_again() -> None:
    """If the answer of the owner got lost, no other broker is asked."""
    servers = Servers(one=to(OWNED), two=ok)
    endpoint = servers.endpoint("https://one")
    endpoint.get(f"{TOPIC}/stats")
    servers.answers["two"] = broken(httpx.ReadError)
    with pytest.raises(AdminUnreachable):
        endpoint.post(f"{TOPIC}/terminate")
    assert [request.url.host for request in servers.asked] == ["one", "two", "two"]


def test_redirects_in_a_circle_end() -> None:
    """Five hops are too many, and the error names the last host."""
    servers = Servers(one=to("http://two/admin/v2/x"), two=to("http://one/admin/v2/x"))
    with pytest.raises(AdminProtocolError, match="redirected 5 times, at last to two"):
        servers.endpoint("http://one", access=AdminAccess()).put("/x")
    assert len(servers.asked) == 5


def test_a_redirect_never_gives_up_tls() -> None:
    """The token is not sent in the clear, even if a server asks for it."""
    servers = Servers(one=to("http://two/admin/v2/x"), two=ok)
    with pytest.raises(AdminProtocolError, match="redirect to two by http, which would give up TLS"):
        servers.endpoint("https://one").get("/x")
    assert [request.url.host for request in servers.asked] == ["one"]


@pytest.mark.parametrize("code", [301, 302, 303])
def test_redirects_that_may_change_the_method_are_for_reading_only(code: int) -> None:
    """A POST does not become a GET, and a 303 is none of the interface."""
    servers = Servers(one=to("https://two/admin/v2/x", code), two=ok)
    with pytest.raises(AdminProtocolError, match="a redirect to https://two/admin/v2/x that does not keep the request"):
        servers.endpoint("https://one").post("/x", {})
    if code != 303:
        assert servers.endpoint("https://one").get("/x").json() == {"fine": True}


@pytest.mark.parametrize(
    ("code", "text", "kind", "base"),
    [
        (401, "", AdminDenied, StoreDenied),
        (403, "", AdminDenied, StoreDenied),
        (404, '{"reason": "Topic not found"}', AdminNotFound, StoreNotFound),
        (405, "", AdminUnsupported, None),
        (409, "", AdminConflict, StoreConflict),
        (412, "", AdminPreconditionFailed, StoreConflict),
        (412, '{"reason": "Failed to find ownership for ServiceUnit:a/b/0x0_0x8"}', AdminServerError, StoreUnreachable),
        (400, "", AdminProtocolError, StoreProtocolError),
        (302, "", AdminProtocolError, StoreProtocolError),
        (503, "", AdminServerError, StoreUnreachable),
    ],
)
def test_refusals_are_typed(code: int, text: str, kind: type[AdminError], base: type[Exception] | None) -> None:
    """Each status has its type, which fits into the tree of all clients, and the fields say what was asked."""
    with pytest.raises(kind) as caught:
        Servers(one=status(code, text)).endpoint("https://one").post("/x/y", {}, {"password": "hidden"})
    error = caught.value
    assert type(error) is kind
    assert base is None or isinstance(error, base)
    assert (error.method, error.url, error.status) == ("POST", "https://one/admin/v2/x/y", code)
    assert "hidden" not in str(error)


def test_errors_travel_with_their_fields() -> None:
    """The request and the answer in an error survive pickling, and another message."""
    with pytest.raises(AdminUnreachable) as caught:
        Servers(one=broken(httpx.ConnectError)).endpoint("https://one").put("/x")
    for copy in (pickle.loads(pickle.dumps(caught.value)), caught.value.saying("changed", path=b"/a")):
        assert type(copy) is AdminUnreachable
        assert (copy.method, copy.url, copy.status, copy.sent) == ("PUT", "https://one/admin/v2/x", None, False)
        assert copy.fields["server"] == "https://one/admin/v2/x"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert str(caught.value.saying("changed")) == "changed"


def test_reasons_are_those_of_the_server() -> None:
    """Pulsar's reason, the message above a stack trace, or the title of a page; never more than a line."""
    trace = "--- An unexpected error occurred in the server ---\n\nMessage: it broke\n\nStacktrace:\n\nat x.y"
    texts = {
        '{"reason": "it is there"}': "it is there",
        trace: "it broke",
        "<html>\n<title>Error 500 Request failed.</title>\n</html>": "Request failed.",
        "first\nsecond": "first",
    }
    for text, reason in texts.items():
        with pytest.raises(AdminServerError) as caught:
            Servers(one=status(500, text)).endpoint("https://one").get("/x")
        assert caught.value.reason == reason


def test_another_broker_is_asked_when_one_cannot_be_reached() -> None:
    """The next address answers, and stays the first choice from then on."""
    servers = Servers(one=broken(httpx.ConnectError), two=ok)
    endpoint = servers.endpoint("https://one", "https://two")
    endpoint.post("/x", {})
    endpoint.get("/x")
    assert [request.url.host for request in servers.asked] == ["one", "two", "two"]


def test_a_change_whose_answer_was_lost_is_not_repeated() -> None:
    """A read continues with another broker; after a change the caller must first check its result."""
    servers = Servers(one=broken(httpx.ReadTimeout), two=ok)
    endpoint = servers.endpoint("https://one", "https://two")
    with pytest.raises(AdminUnreachable) as caught:
        endpoint.put("/x")
    assert (caught.value.sent, caught.value.status) == (True, None)
    assert [request.url.host for request in servers.asked] == ["one"]
    endpoint.get("/x")
    assert [request.url.host for request in servers.asked] == ["one", "one", "two"]


def test_a_server_that_answers_is_not_passed_over() -> None:
    """A 500 is an answer: another broker is not asked, and the first failure counts where none can be reached."""
    servers = Servers(one=status(500), two=ok, gone=broken(httpx.ConnectError))
    with pytest.raises(AdminServerError):
        servers.endpoint("https://one", "https://two").get("/x")
    with pytest.raises(AdminUnreachable, match="https://gone/") as caught:
        servers.endpoint("https://gone", "https://gone.too").get("/x")
    assert not caught.value.sent


def test_answers_of_another_form_are_named() -> None:
    """An answer that is not JSON, or other JSON than expected, is an error that names the field."""
    endpoint = Servers(one=status(200, "<html>"), two=ok).endpoint("https://one")
    with pytest.raises(AdminProtocolError, match="answered 200: it has another form than expected"):
        endpoint.get_as(TypeAdapter(dict[str, str]), "/x")
    with pytest.raises(AdminProtocolError, match="fine: Input should be a valid string"):
        Servers(one=ok).endpoint("https://one").get_as(TypeAdapter(dict[str, str]), "/x")


def test_no_address_is_an_error_of_its_own() -> None:
    """A list without a broker is an error of its own."""
    with pytest.raises(AdminUnreachable, match="no address is known"):
        Servers().endpoint()
    with pytest.raises(AdminProtocolError, match="this is not an address"):
        Servers().session().request("GET", "http://[::1/")


def test_registered_addresses_without_tls_are_for_those_who_have_no_secret() -> None:
    """A plain address is left out where HTTPS is offered and a secret or TLS is configured; each has its own scheme."""
    both = json.dumps({"webServiceUrl": "http://b:80", "webServiceUrlTls": "https://b:443"})
    assert registered_urls(both, AdminAccess()) == ["https://b:443", "http://b:80"]
    assert registered_urls(both, TOKEN) == ["https://b:443"]
    assert registered_urls(both, AdminAccess(tls=Tls(ca_file="ca.pem"))) == ["https://b:443"]
    # The request says why it is not sent.
    assert registered_urls('{"httpUrl": "http://b:80", "httpUrlTls": null}', TOKEN) == ["http://b:80"]
    for wrong in ("{}", "", "[]"):
        with pytest.raises(AdminProtocolError, match="no web address"):
            registered_urls(wrong, TOKEN)
    for forged in ({"webServiceUrlTls": "http://b:80"}, {"webServiceUrl": "ftp://b"}, {"httpUrlTls": "HTTP://b"}):
        with pytest.raises(AdminProtocolError, match="the broker registered"):
            registered_urls(json.dumps(forged), TOKEN)


def test_addresses_of_the_binary_protocol() -> None:
    """With secrets or TLS settings that with TLS, where it is offered; else the plain one, where there is one."""
    both = json.dumps({"pulsarServiceUrl": "pulsar://b:6650", "pulsarServiceUrlTls": "pulsar+ssl://b:6651"})
    assert registered_service_url(both, AdminAccess()) == "pulsar://b:6650"
    assert registered_service_url(both, TOKEN) == "pulsar+ssl://b:6651"
    assert registered_service_url('{"pulsarServiceUrl": "pulsar://b:6650"}', TOKEN) == "pulsar://b:6650"
    assert registered_service_url('{"pulsarServiceUrlTls": "pulsar+ssl://b:1"}', AdminAccess()) == "pulsar+ssl://b:1"
    with pytest.raises(AdminProtocolError, match="no address of its binary protocol"):
        registered_service_url("{}", TOKEN)
    with pytest.raises(AdminProtocolError, match="registered 'pulsar://b:1' as pulsarServiceUrlTls"):
        registered_service_url('{"pulsarServiceUrlTls": "pulsar://b:1"}', TOKEN)


@pytest.mark.parametrize(
    ("access", "url", "message"),
    [
        (TOKEN, "https://elsewhere/", "elsewhere is not among the hosts of these credentials .*PULSAR_MIGRATE_HOSTS"),
        (TOKEN, "http://one", "credentials are set for one, and the link is not encrypted.*ALLOW_PLAIN=true"),
        (AdminAccess(auth=TOKEN.auth), "https://one", "no hosts are listed .*cure: set PULSAR_MIGRATE_HOSTS=one"),
        (AdminAccess(tls=Tls(cert_file="c")), "http://one", "TLS is set for one, and the link is not encrypted"),
        (AdminAccess(destinations=HOSTS), "http://elsewhere", "elsewhere is not among the hosts"),
    ],
)
def test_nothing_is_sent_where_the_settings_do_not_allow_it(access: AdminAccess, url: str, message: str) -> None:
    """Not one byte goes to a host that is not listed, or over a link without TLS."""
    servers = Servers(one=ok, elsewhere=ok)
    session = HttpSession(dataclasses.replace(access, tls=Tls()), transport=servers)
    session.access = access
    with pytest.raises(AdminDestinationRefused, match=message):
        Endpoint(session, [url, "https://one"]).get("/x")
    assert servers.asked == []


def test_a_redirect_leads_to_no_other_host() -> None:
    """The token stays with the hosts that are listed, also when a listed one redirects."""
    servers = Servers(one=to("https://elsewhere/admin/v2/x"), elsewhere=ok)
    with pytest.raises(AdminDestinationRefused, match="elsewhere is not among the hosts"):
        servers.endpoint("https://one").get("/x")
    assert [request.url.host for request in servers.asked] == ["one"]


def test_plain_links_can_be_allowed() -> None:
    """The settings of a set may allow plain links; the list of hosts still holds."""
    plain = AdminAccess(auth=TOKEN.auth, destinations=HOSTS._replace(allow_plain=True))
    servers = Servers(one=ok, elsewhere=ok)
    assert servers.endpoint("http://one", access=plain).get("/x").is_success
    with pytest.raises(AdminDestinationRefused):
        servers.endpoint("http://elsewhere", access=plain).get("/x")


def test_an_untrusted_certificate_does_not_lead_to_a_plain_address() -> None:
    """A certificate that is not trusted may be an attack: only addresses with TLS are asked after it."""

    def untrusted(_: httpx.Request) -> httpx.Response:
        cause = ssl.SSLCertVerificationError("self-signed")
        cause.verify_message = "self-signed"
        raise httpx.ConnectError("refused") from cause

    servers = Servers(one=untrusted, two=ok, b=ok)
    with pytest.raises(AdminUntrusted):
        servers.endpoint("https://one", "http://two", access=AdminAccess()).get("/x")
    assert servers.endpoint("https://one", "http://two", "https://b", access=AdminAccess()).get("/x").is_success
    assert [request.url.host for request in servers.asked] == ["one", "one", "b"]


@pytest.mark.parametrize("metadata", [True, False])
def test_a_client_secret_goes_to_its_server_only(tmp_path: Path, metadata: bool) -> None:
    """The secret of OAuth2 needs HTTPS, and a token endpoint of another host must be listed."""
    key = tmp_path / "key.json"
    key.write_text(json.dumps(KEY_FILE))
    forged = "https://elsewhere/token" if metadata else "http://issuer/token"
    servers = Servers(issuer=lambda _: httpx.Response(200, json={"token_endpoint": forged}), elsewhere=ok, one=ok)
    options = (
        OAuth2(key, issuer_url="https://issuer", destinations=HOSTS)
        if metadata
        else OAuth2(key, token_url=forged, destinations=HOSTS)
    )
    access = AdminAccess(auth=ClientCredentials(options, transport=servers), destinations=HOSTS)
    with pytest.raises(AdminDestinationRefused, match="elsewhere is not among" if metadata else "is not encrypted"):
        servers.endpoint("https://one", access=access).get("/x")
    assert [request.method for request in servers.asked] == ["GET"] * metadata


def test_a_token_file_is_read_again_when_the_server_refuses_the_token(tmp_path: Path) -> None:
    """A token that was renewed within the file's time stamp is found too, and a refusal of the same one is final."""
    file = tmp_path / "token"
    file.write_text("old\n")
    access = AdminAccess(auth=TokenFile(file), destinations=HOSTS)
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        file.write_text("new\n")
        return httpx.Response(200 if seen[-1] == "Bearer new" else 401)

    Servers(one=answer).endpoint("https://one", access=access).get("/x")
    assert seen == ["Bearer old", "Bearer new"]
    with pytest.raises(AdminDenied):
        Servers(one=status(401)).endpoint("https://one", access=access).get("/x")
    file.write_text(" ")
    with pytest.raises(AdminNoCredentials, match="is empty"):
        Servers(one=ok).endpoint("https://one", access=access).get("/x")
    file.unlink()
    with pytest.raises(AdminNoCredentials, match="cannot be read"):
        Servers(one=ok).endpoint("https://one", access=access).get("/x")


class Issuer:
    """A token endpoint whose tokens are numbered."""

    def __init__(self, expires_in: float | None = 600.0) -> None:
        self.expires_in = expires_in
        self.forms: list[str] = []
        self._numbers = count(1)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Return metadata, or the next token."""
        if request.method == "GET":
            assert str(request.url) == f"{ISSUER}/.well-known/openid-configuration"
            return httpx.Response(200, json={"token_endpoint": f"{ISSUER}/token"})
        self.forms.append(request.content.decode())
        body = {"access_token": f"t{next(self._numbers)}", "expires_in": self.expires_in}
        return httpx.Response(200, json=body)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The key file of a client."""
    file = tmp_path / "key.json"
    file.write_text(json.dumps(KEY_FILE))
    return file


def test_a_token_is_renewed_shortly_before_it_expires(key_file: Path) -> None:
    """It lives for 600 s, and the one that follows is got 60 s before that; what is asked is what RFC 6749 says."""
    now, issuer, servers = [0.0], Issuer(), Servers(one=ok)
    options = OAuth2(key_file, issuer_url=f"{ISSUER}/", audience="urn:pulsar", scope="a b")
    auth = ClientCredentials(options, clock=lambda: now[0], transport=Servers(issuer=issuer))
    endpoint = servers.endpoint("https://one", access=AdminAccess(auth=auth, destinations=HOSTS))
    for now[0] in (0.0, 539.0, 541.0):
        endpoint.get("/x")
    assert servers.tokens == ["t1", "t1", "t2"]
    assert issuer.forms[0] == (
        "grant_type=client_credentials&client_id=me&client_secret=hidden&audience=urn%3Apulsar&scope=a+b"
    )


def test_a_refused_token_is_renewed_once(key_file: Path) -> None:
    """With 401 another token is got, and a second 401 is final; a token without an end is kept until then."""
    issuer, answers = Issuer(expires_in=None), iter((200, 401, 200, 401, 401))
    servers = Servers(one=lambda _: httpx.Response(next(answers)))
    auth = ClientCredentials(OAuth2(key_file, token_url=f"{ISSUER}/token"), transport=Servers(issuer=issuer))
    endpoint = servers.endpoint("https://one", access=AdminAccess(auth=auth, destinations=HOSTS))
    endpoint.get("/x")
    endpoint.post("/x", {"a": 1})
    assert servers.asked[-1].content == b'{"a":1}'
    with pytest.raises(AdminDenied):
        endpoint.get("/x")
    assert servers.tokens == ["t1", "t1", "t2", "t2", "t3"]


def test_threads_share_a_token(key_file: Path) -> None:
    """Eight threads whose token is refused at once get one new token, not eight."""
    issuer, together = Issuer(), threading.Barrier(8)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["authorization"] == "Bearer t1":
            together.wait(timeout_for(10))
            return httpx.Response(401)
        return httpx.Response(200)

    auth = ClientCredentials(OAuth2(key_file, token_url=f"{ISSUER}/token"), transport=Servers(issuer=issuer))
    endpoint = Servers(one=answer).endpoint("https://one", access=AdminAccess(auth=auth, destinations=HOSTS))
    with ThreadPoolExecutor(8) as pool:
        assert [response.status_code for response in pool.map(endpoint.get, ["/x"] * 8)] == [200] * 8
    assert len(issuer.forms) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (status(401, '{"error": "invalid_client", "error_description": "unknown"}'), AdminDenied, "401: unknown"),
        (status(200, '{"access_token": ""}'), AdminProtocolError, "not an answer of an OAuth2 server"),
        (
            status(200, '{"access_token": "hidden", "expires_in": "soon"}'),
            AdminProtocolError,
            "not an answer of",
        ),
        (status(503), AdminServerError, "answered 503"),
        (broken(httpx.ConnectError), AdminUnreachable, "on order of the test"),
        (to("https://elsewhere/token"), AdminProtocolError, "answered 307"),
    ],
)
def test_a_token_endpoint_that_gives_none(key_file: Path, answer: Answering, kind: type[AdminError], said: str) -> None:
    """The error names the endpoint and why, without a secret, and the broker is not asked."""
    auth = ClientCredentials(OAuth2(key_file, token_url=f"{ISSUER}/token"), transport=Servers(issuer=answer))
    servers = Servers(one=ok)
    with pytest.raises(kind, match=said) as caught:
        servers.endpoint("https://one", access=AdminAccess(auth=auth, destinations=HOSTS)).get("/x")
    assert caught.value.url == f"{ISSUER}/token"
    assert "hidden" not in str(caught.value)
    assert servers.asked == []


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file"), ("{", "it is not JSON"), ('{"client_id": "hidden"}', "lacks: client_secret")],
)
def test_a_key_file_that_cannot_be_used(tmp_path: Path, text: str | None, said: str) -> None:
    """The error says what is wrong with the file, and shows nothing of it."""
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    auth = ClientCredentials(OAuth2(file, token_url=f"{ISSUER}/token"), transport=Servers())
    with pytest.raises(AdminNoCredentials, match=said) as caught:
        Servers(one=ok).endpoint("https://one", access=AdminAccess(auth=auth, destinations=HOSTS)).get("/x")
    assert "hidden" not in str(caught.value)


def test_a_reader_has_no_call_that_changes_anything() -> None:
    """Every call of a reader is a GET, and it has no call that is declared to change something."""
    session = Servers().session()
    reader, admin = PulsarAdminReader(session, ["https://one"]), PulsarAdmin(session, ["https://one"])
    properties = {name for name, value in vars(PulsarAdminReader).items() if isinstance(value, property)}
    parts = sorted(properties - {"session", "urls"})
    assert len(parts) == 10
    for attribute in parts:
        reading, whole = getattr(reader, attribute), getattr(admin, attribute)
        assert not hasattr(reading, "_calls")
        assert public(reading) < public(whole), attribute
    assert not hasattr(vars(reader)["_reading"], "put")
    verbs = (
        "set_",
        "create",
        "update",
        "delete",
        "remove",
        "add",
        "grant",
        "revoke",
        "unload",
        "skip",
        "reset",
        "term",
    )
    reading = {name for attribute in parts for name in public(getattr(reader, attribute))}
    assert not [name for name in reading if name.startswith(verbs)]


def public(interface: object) -> set[str]:
    """Return the names of the public attributes."""
    return {name for name in dir(interface) if not name.startswith("_")}
