"""Checks of a request before anything of it is parsed: host, origin, token, rights, limits, and the access log."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway import registrations
from gateway.access.authenticator import Authenticator
from gateway.access.grants import Tokens
from gateway.access.principals import Role
from gateway.access.rates import MAX_KEYS, Rates
from gateway.answers import Reason
from gateway.api import gate
from gateway.api.app import build_app
from gateway.api.readiness import MAX_AGE_SECONDS, Readiness
from gateway.api.rights import RIGHTS
from gateway.errors import HTTPProblem, unavailable
from gateway.settings import GatewaySettings
from tests.support.gateway.played import Played
from tests.support.gateway.tokens import token_entry, write

TOPIC = "/admin/v2/scalable/acme/shop/orders"
READERS = {
    ("GET", "/admin/v2/scalable/{tenant}/{namespace}"),
    ("GET", "/admin/v2/scalable/{tenant}/{namespace}/{topic}"),
    ("GET", "/admin/v2/scalable/{tenant}/{namespace}/{topic}/stats"),
}
CLIENTS = READERS | {
    ("POST", "/admin/v2/scalable/{tenant}/{namespace}/{topic}/subscriptions/{subscription}/consumers/{consumer}"),
    ("DELETE", "/admin/v2/scalable/{tenant}/{namespace}/{topic}/subscriptions/{subscription}/consumers/{consumer}"),
}
ROUTES = [(method, path) for path, methods in RIGHTS.items() for method in methods]
FOR_ROLES = {Role.READER: READERS, Role.CLIENT: CLIENTS, Role.ADMIN: {*ROUTES}}
PLACES = {"everywhere": ("*",), "tenant": ("acme",), "namespace": ("acme/shop",), "other": ("acme2", "acme/shop2")}


def bearer(token: str) -> dict[str, str]:
    """Return a header with a token."""
    return {"Authorization": f"Bearer {token}"}


def build(controllers: Played, tokens: Path | None, **settings: Any) -> FastAPI:
    """Return a gateway's application."""
    given: dict[str, Any] = {"cluster": "c", "metadata_url": "zk:zk:2181", "admin_urls": ("http://broker:8080",)}
    return build_app(
        controllers,
        GatewaySettings.model_validate({**given, "hosts": "gateway", **settings}),
        Authenticator(Tokens(tokens) if tokens else None),
    )


def asking(app: FastAPI, url: str = "http://gateway", address: str = "10.0.0.1") -> httpx.AsyncClient:
    """Return a client of an application."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 40_000))
    return httpx.AsyncClient(transport=transport, base_url=url)


@pytest.fixture
def controllers() -> Played:
    """Controllers."""
    return Played()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file with a token of each role for each place."""
    entries = [token_entry(f"{role}-{place}", role, *tenants) for role in Role for place, tenants in PLACES.items()]
    return write(tmp_path / "tokens", *entries)


@pytest_asyncio.fixture
async def client(controllers: Played, tokens: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client of a gateway with tokens."""
    async with asking(build(controllers, tokens)) as opened:
        yield opened


def filled(path: str) -> str:
    """Return a path with names in it."""
    values = {"tenant": "acme", "namespace": "shop", "topic": "orders", "descriptor": "0000-7fff-1"}
    names = dict.fromkeys(("subscription", "consumer"), "name") | dict.fromkeys(("segment", "first", "second"), "0")
    return path.format(**values, **names)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_rights_by_route_role_and_tenant(
    client: httpx.AsyncClient, controllers: Played, method: str, path: str
) -> None:
    """Each route is served exactly to the roles that may use it, in the tenants that they may use."""
    for role in Role:
        for place in PLACES:
            controllers.asked.clear()
            answer = await client.request(method, filled(path), headers=bearer(f"{role}-{place}"))
            may = (method, path) in FOR_ROLES[role] and place != "other"
            assert (answer.status_code == 403) is not may, (role, place, answer.text)
            assert answer.status_code != 401
            if not may:
                assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
                assert "no rights in acme/shop" in answer.text or "this request needs" in answer.text
                assert controllers.asked == []


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_tokens_are_needed(
    client: httpx.AsyncClient, controllers: Played, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    """Nothing is served without a valid token, and no token is logged."""
    caplog.set_level(logging.DEBUG)
    for headers, error in (
        ({}, ""),
        (bearer("unknown-secret"), ', error="invalid_token"'),
        ({"Authorization": "Basic admin-everywhere"}, ""),
    ):
        refused = await client.request(method, filled(path), headers=headers)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"] == f'Bearer realm="pulsar-migrate"{error}'
        Reason.model_validate(refused.json())
    two = [("Authorization", "Bearer admin-everywhere"), ("Authorization", "Bearer admin-everywhere")]
    assert (await client.request(method, filled(path), headers=two)).status_code == 401
    assert controllers.asked == []
    assert "secret" not in caplog.text
    assert "admin-everywhere" not in caplog.text


async def test_updates_name_their_sender(
    client: httpx.AsyncClient, controllers: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update names the client that the gateway has authenticated, and a batch names each client once."""
    # A busy machine may take longer than usual from the first request to the last one of the batch.
    monkeypatch.setattr(registrations, "BATCH_WINDOW_SECONDS", 1.0)
    deleted = await client.delete(f"{TOPIC}/subscriptions/work", headers=bearer("admin-everywhere"))
    assert deleted.status_code == 204
    assert controllers.senders == ["token:admin-everywhere (gateway)"]
    leaves = [("client-tenant", "one"), ("client-namespace", "two"), ("client-tenant", "three")]
    answers = await asyncio.gather(
        *(
            client.delete(f"{TOPIC}/subscriptions/work/consumers/{name}", headers=bearer(token))
            for token, name in leaves
        )
    )
    assert [answer.status_code for answer in answers] == [204, 204, 204]
    assert controllers.senders[1:] == ["token:client-namespace (gateway), token:client-tenant (gateway)"]


async def test_paths_of_other_tenants(client: httpx.AsyncClient, controllers: Played) -> None:
    """A path that is written in another way reaches no other tenant."""
    paths = (
        "/admin/v2/scalable/acme2/shop/../../acme/shop/orders",
        "/admin/v2/scalable/acme2%2f..%2facme/shop/orders",
        "/admin/v2/scalable/acme2/shop2/..%2f..%2facme%2fshop%2forders",
        "//admin/v2/scalable/acme/shop/orders",
        "/admin/v2/scalable/acme/shop/orders/",
        "/admin/v2/scalable/ACME/shop/orders",
        "/admin/v2/scalable/acme%00/shop/orders",
        "/admin/v2/scalable/acme%0a/shop/orders",
    )
    for path in paths:
        answer = await client.delete(path, headers=bearer("admin-other"))
        assert answer.status_code in {403, 404, 405}, (path, answer.status_code)
    assert controllers.asked == []


def end_tokens(file: Path, change: str) -> None:
    """Remove all tokens of a file, or the file."""
    if change == "emptied":
        file.write_text("")
    else:
        file.unlink()


@pytest.mark.parametrize("change", ["revoked", "emptied", "deleted"])
async def test_tokens_that_are_revoked(client: httpx.AsyncClient, tokens: Path, change: str) -> None:
    """A token that is taken out of its file, also with all others, is refused from the next request on."""
    assert (await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code == 200
    if change == "revoked":
        write(tokens, token_entry("admin-everywhere", "admin"))
    else:
        end_tokens(tokens, change)
    assert (await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code == 401
    admins_status = (await client.get(TOPIC, headers=bearer("admin-everywhere"))).status_code
    assert admins_status == (200 if change == "revoked" else 401)


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("http://gateway", 404),
        ("http://GATEWAY.:8090", 404),
        ("http://localhost:8090", 404),
        ("http://127.0.0.1:8090", 404),
        ("http://[::1]:8090", 404),
        ("http://public.example", 404),
        ("http://attacker.example", 421),
        ("http://gateway.attacker.example", 421),
        ("http://10.0.0.1", 421),
    ],
)
async def test_hosts(controllers: Played, url: str, status: int) -> None:
    """Requests for other hosts are refused before anything else, as browsers send them after DNS rebinding."""
    app = build(controllers, None, public_url="https://public.example:8443")
    async with asking(app, url) as client:
        assert (await client.get("/nothing")).status_code == status
        merged = await client.post(f"{TOPIC}/merge/1/2", headers={"Content-Type": "text/plain"})
        assert merged.status_code == (421 if status == 421 else 204)
        assert (await client.get("/healthz")).status_code == 200
    assert bool(controllers.asked) is (status != 421)


async def test_requests_without_a_host(controllers: Played) -> None:
    """A request without a host, or with two, is refused."""
    app = build(controllers, None)
    for hosts in ([], [b"gateway", b"attacker.example"], [b"["], [b""]):
        statuses: list[int] = []

        async def send(message: Any, statuses: list[int] = statuses) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def receive() -> Any:
            return {"type": "http.request"}

        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": TOPIC, "query_string": b"", "client": None}
        scope["headers"] = [(b"host", host) for host in hosts]
        await app(scope, receive, cast("Any", send))
        assert statuses == [421]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://gateway", 204),
        ("https://gateway", 204),
        ("http://gateway:3000", 403),
        ("http://localhost", 403),
        ("https://attacker.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
async def test_origins(controllers: Played, origin: str, status: int) -> None:
    """Web pages of other origins change nothing, also where no token is needed."""
    async with asking(build(controllers, None)) as client:
        answer = await client.post(f"{TOPIC}/merge/1/2", headers={"Origin": origin})
    assert (answer.status_code, controllers.asked) == (status, ["merge"] if status == 204 else [])


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes for limits of rates, however long the requests of a test take."""
    monkeypatch.setattr(gate, "Rates", functools.partial(Rates, clock=lambda: 0.0))


@pytest.mark.usefixtures("stopped_clock")
async def test_failed_logins(controllers: Played, tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Failed logins of an address are limited, and so is what they log; valid tokens of the address still work."""
    caplog.set_level(logging.INFO)
    first = int(gate.FAILED_LOGINS_AT_ONCE)
    async with asking(build(controllers, tokens)) as client:
        answers = [await client.get(TOPIC, headers=bearer("unknown")) for _ in range(100)]
        assert [answer.status_code for answer in answers] == [401] * first + [429] * (100 - first)
        assert answers[-1].headers["Retry-After"] == "10"
        assert len([record for record in caplog.records if record.name == "gateway.access"]) < 40
        assert (await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code == 200


@pytest.mark.usefixtures("stopped_clock")
async def test_rate_of_an_identity(controllers: Played, tokens: Path) -> None:
    """An identity that sends too many requests must wait, and others are served."""
    async with asking(build(controllers, tokens, requests_per_second=0.5)) as client:
        statuses = [(await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        assert (await client.get(TOPIC, headers=bearer("reader-namespace"))).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


async def test_most_requests(controllers: Played, tokens: Path) -> None:
    """While the most requests are being served, others must retry, and health is answered."""
    release, hanging = asyncio.Event(), asyncio.Semaphore(0)

    async def hang(topic: str, name: str, argument: Any, answer: Any, deadline: float) -> Any:
        hanging.release()
        await release.wait()

    controllers.update = hang
    async with asking(build(controllers, tokens, max_connections=16)) as client:
        paths = [f"{TOPIC}-{number}/subscriptions/bill" for number in range(12)]
        served = [asyncio.create_task(client.put(path, headers=bearer("admin-tenant"))) for path in paths]
        for _ in paths:
            await hanging.acquire()
        assert (await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        release.set()
        assert {(await answer).status_code for answer in served} == {204}
        assert (await client.get(TOPIC, headers=bearer("reader-tenant"))).status_code == 200


async def test_bodies_without_a_token(controllers: Played, tokens: Path) -> None:
    """No byte of a body is read before the token is accepted."""
    app = build(controllers, tokens)
    sent: list[Any] = []

    async def receive() -> Any:
        pytest.fail("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    for headers in ([(b"host", b"gateway")], [(b"host", b"gateway"), (b"authorization", b"Bearer client-tenant")]):
        scope = {"type": "http", "method": "PUT", "path": TOPIC, "query_string": b"", "client": ("10.0.0.1", 1)}
        await app({**scope, "headers": headers}, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [401, 403]
    assert all((b"connection", b"close") in message["headers"] for message in sent if "status" in message)


async def test_access_log(client: httpx.AsyncClient, controllers: Played, caplog: pytest.LogCaptureFixture) -> None:
    """Each request is one line with who sent it, from where, for what, and its status; refused ones too."""
    caplog.set_level(logging.INFO, "gateway.access")
    await client.post(f"{TOPIC}/split/0", headers=bearer("admin-tenant"))
    await client.post(f"{TOPIC}/split/0", headers=bearer("reader-tenant"))
    await client.get(f"{TOPIC}%0aforged%1b%5b2J?secret=1")
    await client.get("/healthz")
    seen = [
        tuple(getattr(record, name) for name in ("identity", "method", "route", "status", "address"))
        for record in caplog.records
        if record.name == "gateway.access"
    ]
    route = "/admin/v2/scalable/{tenant}/{namespace}/{topic}/split/{segment}"
    assert seen == [
        ("token:admin-tenant", "POST", route, 204, "10.0.0.1"),
        ("token:reader-tenant", "POST", route, 403, "10.0.0.1"),
        ("-", "GET", "-", 401, "10.0.0.1"),
    ]
    assert not [record for record in caplog.records if not record.getMessage().isprintable()]
    assert "secret" not in caplog.text


def test_rates() -> None:
    """A key may use its burst at once, and its rate from then on; of many keys the oldest are forgotten."""
    now = 0.0
    rates = Rates(2, 3, lambda: now)
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    assert rates.take("b")
    now = 1.0
    assert [rates.take("a") for _ in range(3)] == [True, True, False]
    for number in range(MAX_KEYS):
        rates.take(str(number))
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]


async def test_readiness() -> None:
    """Temporal is asked once for all requests of a short time, and a failure counts as long."""
    now, asked, away = 0.0, 0, False

    async def check() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if away:
            raise unavailable("zk-1.internal does not answer")

    readiness = Readiness(check, lambda: now)
    await asyncio.gather(*(readiness.require() for _ in range(100)))
    assert asked == 1
    now, away = MAX_AGE_SECONDS, True
    for _ in range(3):
        with pytest.raises(HTTPProblem) as refused:
            await readiness.require()
        assert "internal" not in refused.value.reason
    away, now = False, 2 * MAX_AGE_SECONDS
    await readiness.require()
    assert asked == 3
