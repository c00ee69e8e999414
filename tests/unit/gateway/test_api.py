"""The HTTP interface: its paths, and how refusals are reported; `test_gate` asks who may use what.

The controllers are played here; `tests/workflows/gateway` asks real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.access.authenticator import Authenticator
from gateway.access.grants import Tokens
from gateway.answers import Reason
from gateway.api.app import build_app
from gateway.api.body_limit import MAX_BODY_BYTES
from gateway.api.rights import RIGHTS
from gateway.controllers import ControllerNotFound, UpdateRejected
from gateway.errors import unavailable
from gateway.settings import GatewaySettings
from models.lifecycle.failures import FailureKind
from models.segments.layout import SegmentLayout
from models.topic_controller.pruning import PruneResult
from models.topic_controller.sessions import ConsumerAssignment
from tests.support.gateway.played import Played
from tests.support.gateway.tokens import token_entry, write

ORDERS = "/admin/v2/scalable/acme/shop/orders"
SEGMENTS = "/admin/v2/segments/acme/shop/orders"
ADMIN, CLIENT = "root-secret", "client-secret"
SETTINGS = GatewaySettings(
    cluster="c", metadata_url="zk:zk:2181", admin_urls=("http://broker:8080",), hosts=("gateway",), api_page=True
)


@pytest.fixture
def controllers() -> Played:
    """Controllers."""
    return Played()


@pytest.fixture
def app(controllers: Played, tmp_path: Path) -> FastAPI:
    """A gateway with a token of two roles."""
    file = write(tmp_path / "tokens", token_entry(ADMIN, "admin"), token_entry(CLIENT, "client"))
    return build_app(controllers, SETTINGS, Authenticator(Tokens(file)))


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client of the application."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as asking:
        yield asking


def bearer(token: str) -> dict[str, str]:
    """Return a header with a token."""
    return {"Authorization": f"Bearer {token}"}


async def test_every_path_has_rights(app: FastAPI) -> None:
    """The table of rights lists exactly the paths and methods that the gateway serves."""
    served = {
        path: {method.upper() for method in methods}
        for path, methods in app.openapi()["paths"].items()
        if path not in ("/healthz", "/readyz")
    }
    assert served == {path: {*methods} for path, methods in RIGHTS.items()}


async def test_health(client: httpx.AsyncClient, controllers: Played) -> None:
    """Health needs no token; a gateway without Temporal is alive, is not ready, and shows no reason."""
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).status_code == HTTPStatus.OK

    def away() -> None:
        raise unavailable("Temporal does not answer: gone")

    controllers.answer = away
    later = httpx.AsyncClient(
        transport=httpx.ASGITransport(build_app(controllers, SETTINGS, Authenticator())), base_url="http://10.0.0.1"
    )
    async with later:
        assert (await later.get("/healthz")).status_code == HTTPStatus.OK
        ready = await later.get("/readyz")
    assert (ready.status_code, "Temporal" in ready.text) == (503, False)


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (UpdateRejected("no", FailureKind.REFUSED, unsure=False), 409, {}),
        (UpdateRejected("no", FailureKind.CONFLICT, unsure=False), 409, {}),
        (UpdateRejected("no", FailureKind.INVALID_INPUT, unsure=False), 412, {}),
        (UpdateRejected("no", FailureKind.DENIED, unsure=False), 502, {}),
        (UpdateRejected("no", FailureKind.UNREACHABLE, unsure=False), 503, {"Retry-After": "2"}),
        (UpdateRejected("no", FailureKind.NOT_LEADER, unsure=False), 503, {"Retry-After": "2"}),
        (UpdateRejected("no", "SomethingElse", unsure=False), 500, {}),
        (ControllerNotFound("persistent://acme/shop/orders", unsure=False), 404, {}),
        (unavailable("later"), 503, {"Retry-After": "2"}),
        (RuntimeError("hidden"), 500, {}),
    ],
)
async def test_how_refusals_are_reported(
    client: httpx.AsyncClient, controllers: Played, error: Exception, status: int, headers: dict[str, str]
) -> None:
    """A refusal has a status by its type, and a reason; an unexpected error shows nothing of the inside."""

    def refuse() -> None:
        raise error

    controllers.answer = refuse
    answer = await client.put(f"{ORDERS}/subscriptions/bill", headers=bearer(ADMIN))
    assert answer.status_code == status
    assert {name: answer.headers.get(name) for name in headers} == headers
    assert "hidden" not in Reason.model_validate(answer.json()).reason


@pytest.mark.parametrize(
    ("path", "fault", "status"),
    [
        ("split/9", "segment_not_found", 404),
        ("split/3", "segment_sealed", 409),
        ("split/0", "", 409),
        ("split/0", "other", 409),
        ("split/0", "too_small", 412),
        ("merge/0/9", "segment_not_found", 404),
        ("merge/2/3", "segment_sealed", 409),
        ("merge/0/2", "not_neighbours", 412),
        ("merge/0/1", "", 409),
    ],
)
async def test_refused_changes_of_segments(
    client: httpx.AsyncClient, controllers: Played, path: str, fault: str, status: int
) -> None:
    """A missing segment, a change that is not possible now, and one that never fits have different statuses."""

    def refuse() -> None:
        raise UpdateRejected("no", FailureKind.REFUSED, unsure=False, fault=fault)

    controllers.answer = refuse
    answer = await client.post(f"{ORDERS}/{path}", headers=bearer(ADMIN))
    assert (answer.status_code, answer.json()) == (status, {"reason": "no"})


@pytest.mark.parametrize(
    ("path", "layout"),
    [
        ("split/1", SegmentLayout.initial(3, 0).split(1, 0)),
        ("merge/2/1", SegmentLayout.initial(3, 0).merge(1, 2, 0)),
        ("split/1", SegmentLayout.initial(3, 0).split(1, 0).split(3, 0)),
    ],
)
async def test_a_lost_answer(client: httpx.AsyncClient, controllers: Played, path: str, layout: SegmentLayout) -> None:
    """A split or a merge whose answer was lost, and which is refused as done, succeeds."""
    controllers.layout = layout
    for unsure, status in ((True, 204), (False, 409)):

        def refuse(unsure: bool = unsure) -> None:
            raise UpdateRejected("segment 1 is sealed", FailureKind.REFUSED, unsure=unsure)

        controllers.answer = refuse
        assert (await client.post(f"{ORDERS}/{path}", headers=bearer(ADMIN))).status_code == status


async def test_a_lost_deletion(client: httpx.AsyncClient, controllers: Played) -> None:
    """A deletion whose answer was lost succeeds if its controller has completed, and not if that was ended."""
    for unsure, completes, status in ((True, True, 204), (True, False, 503), (False, True, 404)):
        controllers.completes = completes

        def refuse(unsure: bool = unsure) -> None:
            raise ControllerNotFound("persistent://acme/shop/orders", unsure=unsure)

        controllers.answer = refuse
        assert (await client.delete(ORDERS, headers=bearer(ADMIN))).status_code == status


async def test_single_segments(client: httpx.AsyncClient, controllers: Played) -> None:
    """A segment that the layout does not name does not exist; a sealed one is ended, and an active one is not."""
    controllers.layout = SegmentLayout.initial(2, 0).split(0, 0)
    for method, path, status in (
        ("PUT", "0000-3fff-2", 204),
        ("PUT", "0000-3fff-9", 404),
        ("PUT", "0000-7fff-0", 204),
        ("POST", "0000-7fff-0/terminate", 204),
        ("POST", "0000-3fff-2/terminate", 409),
        ("POST", "0000-0000-7/terminate", 404),
        ("DELETE", "0000-3fff-2", 409),
        ("DELETE", "0000-0000-7", 204),
    ):
        answer = await client.request(method, f"{SEGMENTS}/{path}", headers=bearer(ADMIN))
        assert answer.status_code == status, (method, path)
    assert controllers.asked == ["ensure_segment"] * 2


WRONG: list[tuple[tuple[str, str, dict[str, Any]], int]] = [
    (("PUT", "?numInitialSegments=0", {}), 412),
    (("PUT", "?numInitialSegments=many", {}), 412),
    (("PUT", "?numInitialSegments=1025", {}), 412),
    (("PUT", "", {"content": b"{"}), 412),
    (("PUT", "", {"json": {"a": 1}}), 412),
    (("PUT", "", {"content": b" " * (MAX_BODY_BYTES + 1)}), 413),
    (("PUT", "-partition-1", {}), 412),
    (("PUT", "%20", {}), 412),
    (("PUT", "/subscriptions/a%7Bb", {}), 412),
    (("PUT", "/subscriptions/a?type=EXCLUSIVE", {}), 404),
    (("POST", "/subscriptions/a/consumers/b%0A", {"json": {"kind": "STREAM"}}), 412),
    (("POST", "/subscriptions/a/consumers/b", {"json": {"kind": "QUEUE"}}), 412),
    (("POST", "/subscriptions/a/consumers/b", {}), 412),
    (("POST", "/split/-1", {}), 412),
    (("POST", "/nothing", {}), 404),
    (("PATCH", "", {}), 405),
]


@pytest.mark.parametrize(("asked", "status"), WRONG)
async def test_invalid_values(
    client: httpx.AsyncClient, controllers: Played, asked: tuple[str, str, dict[str, Any]], status: int
) -> None:
    """An invalid value is refused with a reason, and no controller gets it."""
    method, path, options = asked
    answer = await client.request(method, f"{ORDERS}{path}", headers=bearer(ADMIN), **options)
    assert answer.status_code == status, answer.text
    assert Reason.model_validate(answer.json()).reason
    assert controllers.asked == []


async def test_segments_that_stay(client: httpx.AsyncClient, controllers: Played) -> None:
    """A sealed segment goes when nothing holds it; else the answer says what does."""
    controllers.layout = SegmentLayout.initial(2, 0).split(0, 0)
    for pruned, answered in (
        (PruneResult(removed=(0,)), (204, None)),
        (
            PruneResult(retained={0: "bill has 3 unacknowledged messages"}),
            (409, "0000-7fff-0 is retained: bill has 3 unacknowledged messages"),
        ),
    ):
        controllers.answer = lambda pruned=pruned: pruned
        answer = await client.delete(f"{SEGMENTS}/0000-7fff-0", headers=bearer(ADMIN))
        assert (answer.status_code, answer.json()["reason"] if answer.content else None) == answered
    assert controllers.asked == ["prune"] * 2


async def test_lists(client: httpx.AsyncClient, controllers: Played) -> None:
    """Topics are listed in full, all of them or those with certain properties."""
    controllers.layout = controllers.layout.model_copy(update={"properties": {"owner": "a", "tier": "gold"}})
    names = ["persistent://acme/shop/orders"]
    for query, expected in (
        ("", names),
        ("?property=owner=a", names),
        ("?property=owner=a&property=tier=gold", names),
        ("?property=owner=a&property=tier=tin", []),
        ("?property=owner", 412),
    ):
        answer = await client.get(f"/admin/v2/scalable/acme/shop{query}", headers=bearer(CLIENT))
        assert (answer.json() if answer.status_code == 200 else answer.status_code) == expected


async def test_checkpoints(client: httpx.AsyncClient, controllers: Played) -> None:
    """A consumer with its own positions gets all segments, and has no session."""
    controllers.layout = SegmentLayout.initial(1, 0).split(0, 0)
    path = f"{ORDERS}/subscriptions/bill/consumers/one"
    answer = (await client.post(path, json={"kind": "CHECKPOINT"}, headers=bearer(CLIENT))).json()
    assert [segment["segmentId"] for segment in answer["segments"]] == [0, 1, 2]
    assert controllers.asked == []


async def test_instances(client: httpx.AsyncClient, controllers: Played) -> None:
    """The instance of a consumer is sent with its registration and its departure, if it has one."""
    path = f"{ORDERS}/subscriptions/bill/consumers/one"
    assignment = ConsumerAssignment(created_ms=1, layout_epoch=0, generation=1)
    controllers.answer = lambda: {"one": assignment}
    assert (await client.post(path, json={"kind": "STREAM", "instance": "i-1"}, headers=bearer(CLIENT))).is_success
    controllers.answer = lambda: None
    for query, status in (("?instance=i-1", 204), ("", 204), ("?instance=%20", 412)):
        assert (await client.delete(f"{path}{query}", headers=bearer(CLIENT))).status_code == status
    assert [registrations.instances for registrations in controllers.sent] == [{"one": "i-1"}, {"one": "i-1"}, {}]


async def test_owners(client: httpx.AsyncClient, controllers: Played) -> None:
    """A session belongs to the client that sent the request; admins may use all sessions."""
    path = f"{ORDERS}/subscriptions/bill/consumers/one"
    for token in (CLIENT, ADMIN):
        controllers.answer = lambda: {"one": ConsumerAssignment(created_ms=1, layout_epoch=0, generation=1)}
        assert (await client.post(path, json={"kind": "STREAM"}, headers=bearer(token))).is_success
        controllers.answer = lambda: None
        assert (await client.delete(path, headers=bearer(token))).is_success
    owner = {"one": f"token:{CLIENT}"}
    assert [request.owners for request in controllers.sent] == [owner, owner, {}, {}]


async def test_the_page(client: httpx.AsyncClient, controllers: Played) -> None:
    """Each path has a summary, a description of each refusal, and says that it needs a token; by default no page is."""
    assert (await client.get("/docs")).status_code == HTTPStatus.OK
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path, methods in RIGHTS.items():
        for method in methods:
            operation = paths[path][method.lower()]
            assert operation["description"]
            assert operation["security"] == [{"HTTPBearer": []}]
            assert {"401", "403", "412", "429", "503"} <= {*operation["responses"]}
    default = build_app(controllers, SETTINGS.model_copy(update={"api_page": False}), Authenticator())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(default), base_url="http://gateway") as asking:
        for path in ("/docs", "/openapi.json", "/static-offline-docs/swagger-ui.css", "/redoc", "/"):
            assert (await asking.get(path)).status_code == HTTPStatus.NOT_FOUND


async def test_reasons_for_operators_alone(client: httpx.AsyncClient, controllers: Played) -> None:
    """Only an admin sees reasons that name servers; the log has them."""

    def fail() -> None:
        raise unavailable("zk-1.internal:2181 does not answer")

    controllers.answer = fail
    path = f"{ORDERS}/subscriptions/bill/consumers/one"
    answers = [await client.delete(path, headers=bearer(token)) for token in (ADMIN, CLIENT)]
    assert [(answer.status_code, "zk-1.internal" in answer.text) for answer in answers] == [(503, True), (503, False)]
    assert [answer.headers["Retry-After"] for answer in answers] == ["2", "2"]
