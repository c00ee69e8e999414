"""The page's application: what it answers, to whom, and what it says if Temporal or a worker does not answer."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from gateway.access.grants import Tokens
from page import app as page_app
from page.access import Viewers
from page.app import build_app
from page.reading import MAX_MIGRATIONS, Readings
from page.settings import PageSettings
from process.exit_codes import CommandFailed, ExitCode
from tests.support.gateway.tokens import token_entry, write
from tests.support.page.views import ended, running
from views.migration import View

ID = "metadata-store/cluster-1"
PATHS = ("/", "/parts", f"/migration/{ID}", f"/parts/{ID}", f"/json/{ID}")


@dataclass
class Temporal:
    """Answers in place of Temporal.

    Attributes:
        view: of every migration.
        error: raised instead.
    """

    view: View = field(default_factory=lambda: running()["metadata-store/VALIDATION/window"][0])
    error: Exception | None = None
    namespace: str = "default"

    async def read_view(self, _: Client, workflow_id: str, **__: Any) -> View:
        """Return the view of a migration."""
        if self.error:
            raise self.error
        return self.view.model_copy(update={"workflow_id": workflow_id})

    async def list_migrations(self, _: Client, **__: Any) -> list[Any]:
        """Return an empty list."""
        if self.error:
            raise self.error
        return []


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> Temporal:
    """Answer in place of Temporal."""
    answering = Temporal()
    monkeypatch.setattr(page_app, "read_view", answering.read_view)
    monkeypatch.setattr(page_app, "list_migrations", answering.list_migrations)
    monkeypatch.setattr(page_app, "VIEW_SECONDS", 0.0)
    return answering


def build(temporal: Temporal, tokens: Tokens | None = None, only: str = "") -> Starlette:
    """Return the application."""
    return build_app(cast("Client", temporal), PageSettings(), Viewers(tokens), only)


def asking(app: Starlette, url: str = "http://127.0.0.1:8091") -> httpx.AsyncClient:
    """Return a client of an application."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url=url)


@pytest_asyncio.fixture
async def client(temporal: Temporal) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client of a page without tokens."""
    async with asking(build(temporal)) as opened:
        yield opened


async def test_documents_allow_themselves_only(client: httpx.AsyncClient) -> None:
    """The policy of a document names its own style and script, and nothing else may run, load or frame it."""
    for path in ("/", f"/migration/{ID}", "/nothing"):
        answer = await client.get(path, headers={"Accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
        assert directives["default-src"] == directives["frame-ancestors"] == directives["base-uri"] == "'none'"
        for tag, name in (("style", "style-src"), ("script", "script-src")):
            text = answer.text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
            digest = base64.b64encode(sha256(text.encode()).digest()).decode()
            assert directives[name] == f"'sha256-{digest}'"
            assert answer.text.count(f"<{tag}") == 1
        assert " style=" not in answer.text
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_other_hosts_and_origins_are_refused(temporal: Temporal) -> None:
    """A web page of another origin reaches nothing, even if its name leads to this machine."""
    app = build(temporal)
    async with asking(app, "http://evil.example") as client:
        for path in PATHS:
            assert (await client.get(path)).status_code == HTTPStatus.MISDIRECTED_REQUEST
    async with asking(app) as client:
        answer = await client.get(PATHS[2], headers={"Origin": "http://evil.example"})
        assert answer.status_code == HTTPStatus.FORBIDDEN


async def test_only_reads(client: httpx.AsyncClient) -> None:
    """Other methods than GET and HEAD are refused."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = await client.request(method, PATHS[2])
        assert answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    assert (await client.head(PATHS[2])).status_code == HTTPStatus.OK


async def test_an_id_with_signs_of_an_address(temporal: Temporal) -> None:
    """The start page leads to the only migration, also if its topic has an encoded name."""
    only = "scalable-topic/prod/shop/orders/a%2Fb?c#d"
    async with asking(build(temporal, only=only)) as client:
        answer = await client.get("/", headers={"Accept": "text/html"}, follow_redirects=True)
    assert answer.status_code == HTTPStatus.OK
    assert "a%2Fb?c#d" in answer.text


async def test_tokens(temporal: Temporal, tmp_path: Path) -> None:
    """With tokens each path needs one, as a password or as a bearer token; one of a tenant is refused."""
    tokens = Tokens(write(tmp_path / "tokens", token_entry("all", "reader", "*"), token_entry("some", "admin", "acme")))
    async with asking(build(temporal, tokens)) as client:
        for path in PATHS:
            answer = await client.get(path)
            assert answer.status_code == HTTPStatus.UNAUTHORIZED
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert (await client.get(path, auth=("any", "wrong"))).status_code == HTTPStatus.UNAUTHORIZED
            assert (await client.get(path, auth=("any", "all"))).status_code == HTTPStatus.OK
            bearer = {"Authorization": "Bearer all"}
            assert (await client.get(path, headers=bearer)).status_code == HTTPStatus.OK
            assert (await client.get(path, auth=("any", "some"))).status_code == HTTPStatus.FORBIDDEN
            broken = {"Authorization": "Basic $$$"}
            assert (await client.get(path, headers=broken)).status_code == HTTPStatus.UNAUTHORIZED
        assert (await client.get("/healthz")).status_code == HTTPStatus.OK


async def test_polls_are_not_logged(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """An open browser asks every two seconds: only its first request, and refusals, are in the access log."""
    caplog.set_level(logging.INFO, "gateway.access")
    await client.get(f"/migration/{ID}")
    await client.get(f"/parts/{ID}")
    await client.post(f"/parts/{ID}")
    logged = [record.__dict__["status"] for record in caplog.records if record.name == "gateway.access"]
    assert logged == [200, 405]


async def test_one_migration_only(temporal: Temporal) -> None:
    """A page of one migration leads to it, shows its parts too, and no other one."""
    async with asking(build(temporal, only=ID)) as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, f"/migration/{ID}")
        for path in (f"/migration/{ID}", f"/migration/{ID}/acme/shop"):
            assert (await client.get(path)).status_code == HTTPStatus.OK
        for path in ("/migration/metadata-store/cluster-12", "/parts/other", "/json/other", "/parts"):
            assert (await client.get(path)).status_code == HTTPStatus.NOT_FOUND


async def test_silent_temporal(client: httpx.AsyncClient, temporal: Temporal) -> None:
    """Without Temporal a page says so, with the cure; one that was seen before keeps its last state."""
    temporal.error = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
    answer = await client.get("/migration/new")
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert "Temporal does not answer (connection refused)" in answer.text
    assert "TEMPORAL_ADDRESS" in answer.text
    temporal.error = None
    before = (await client.get(f"/parts/{ID}")).json()
    temporal.error = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
    after = (await client.get(f"/parts/{ID}")).json()
    assert before["problem"] is None
    assert "connection refused" in after["problem"]["cause"]
    assert after["at"] == before["at"]
    assert after["parts"].keys() == before["parts"].keys()


async def test_unknown_migration(client: httpx.AsyncClient, temporal: Temporal) -> None:
    """An unknown id is answered with 404, its cause and its cure."""
    temporal.error = CommandFailed(ExitCode.USAGE, "no workflow x in namespace default.", "pulsar-migrate list")
    answer = await client.get("/migration/x")
    assert answer.status_code == HTTPStatus.NOT_FOUND
    assert "no workflow x in namespace default" in answer.text


async def test_download(client: httpx.AsyncClient, temporal: Temporal) -> None:
    """The downloaded report is the one whose SHA-256 the page shows."""
    temporal.view = ended()["metadata-store-live"][0]
    answer = await client.get(f"/json/{ID}")
    assert answer.headers["content-disposition"] == 'attachment; filename="metadata-store-cluster-1.json"'
    assert sha256(answer.content).hexdigest() in (await client.get(f"/migration/{ID}")).text


async def test_reads_once_for_all() -> None:
    """However many browsers ask, Temporal is asked once in a while, and a bounded number of views is kept."""
    asked: list[str] = []
    now = [0.0]

    async def read(name: str) -> str:
        asked.append(name)
        return name

    readings = Readings(read, 2.0, clock=lambda: now[0])
    for _ in range(3):
        assert (await readings.get("a")).value == "a"
    assert asked == ["a"]
    now[0] += 2.0
    await readings.get("a")
    assert asked == ["a", "a"]
    for number in range(MAX_MIGRATIONS):
        await readings.get(str(number))
    await readings.get("a")
    assert asked.count("a") == 3
