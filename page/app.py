"""The page's application: the list, one migration, and what a browser asks again and again."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from temporalio.client import Client
from temporalio.service import RPCError

from gateway.api.gate import Gate
from gateway.api.readiness import Readiness
from gateway.errors import HTTPProblem, unavailable
from models.text import printable_json
from page.access import Viewers, find_path
from page.html import LISTED, POLICY, list_document, list_parts, migration_changes, migration_document, problem_document
from page.metrics import MetricsSource
from page.reading import Problem, Reading, Readings
from page.settings import PREFIX, PageSettings
from page.snapshot import SnapshotReader
from views.listing import QUERY_LIMIT, Listed, list_migrations
from views.migration import View, read_view

VIEW_SECONDS, LIST_SECONDS = 1.0, 10.0
"""Seconds for which a migration, and the list, are shown to other browsers too; the list asks each migration."""

SHOWN_CHILDREN = 12
"""Most running parts of a migration whose own state is read."""

_SECURITY = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_log = logging.getLogger(__name__)


def build_app(client: Client, settings: PageSettings, viewers: Viewers, only: str = "") -> Starlette:
    """Return the application.

    Args:
        client: of Temporal.
        settings: of the process.
        viewers: who may see the page.
        only: workflow id of the only migration that is served, with its parts; empty for all.
    """
    pages = Pages(client, only)
    metrics = MetricsSource(SnapshotReader(client, settings.task_queue).read)

    async def scrape(request: Request) -> Response:
        if only:
            raise HTTPProblem(HTTPStatus.NOT_FOUND, f"this page serves {only} only; start `page` without an id")
        text, content_type = await metrics.answer(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def check() -> None:
        try:
            await client.service_client.check_health()
        except RPCError as error:
            raise unavailable(f"Temporal does not answer: {error.message}") from error

    readiness = Readiness(check)

    async def readyz(_: Request) -> Response:
        await readiness.require()
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/", pages.index),
        Route("/parts", pages.index_parts),
        Route("/migration/{workflow_id:path}", pages.migration),
        Route("/parts/{workflow_id:path}", pages.parts),
        Route("/json/{workflow_id:path}", pages.download),
        Route("/metrics", scrape),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]
    gate = Middleware(
        Gate,
        authenticator=viewers,
        hosts=settings.own_hosts,
        rate=settings.requests_per_second,
        most=settings.max_requests,
        find=find_path,
        process="page",
        hosts_setting=f"{PREFIX}HOSTS",
    )
    handlers: dict[Any, Any] = {HTTPProblem: _problem, HTTPException: _http, Exception: _unexpected}
    return Starlette(routes=routes, middleware=[gate], exception_handlers=handlers)


async def healthz(_: Request) -> Response:
    """Return that the process serves."""
    return JSONResponse({"status": "ok"})


class Pages:
    """The pages of one Temporal namespace.

    Args:
        client: of Temporal.
        only: workflow id of the only migration that is served, with its parts; empty for all.
    """

    def __init__(self, client: Client, only: str) -> None:
        self._client = client
        self._only = only
        self._views: Readings[View] = Readings(self._read_view, VIEW_SECONDS)
        self._lists: Readings[list[Listed]] = Readings(self._read_list, LIST_SECONDS)

    async def index(self, _: Request) -> Response:
        """Return the list, or lead to the only migration."""
        if self._only:
            return RedirectResponse(f"/migration/{quote(self._only)}")
        reading = await self._lists.get("")
        if reading.value is None:
            return _html(problem_document(_cause_of(reading.problem)), HTTPStatus.SERVICE_UNAVAILABLE)
        return _html(list_document(reading.value, datetime.now(UTC), self._client.namespace))

    async def index_parts(self, _: Request) -> Response:
        """Return the parts of the list that change."""
        self._require("")
        reading = await self._lists.get("")
        parts = list_parts(reading.value, datetime.now(UTC)) if reading.value is not None else {}
        return _changes({"parts": parts}, reading)

    async def migration(self, request: Request) -> Response:
        """Return the page of one migration."""
        workflow_id = self._require(request.path_params["workflow_id"])
        reading = await self._views.get(workflow_id)
        if reading.value is None:
            problem = _cause_of(reading.problem)
            status = HTTPStatus.NOT_FOUND if problem.missing else HTTPStatus.SERVICE_UNAVAILABLE
            return _html(problem_document(problem, again=not problem.missing), status)
        return _html(migration_document(reading.value, datetime.now(UTC)))

    async def parts(self, request: Request) -> Response:
        """Return the parts of a migration's page that change."""
        reading = await self._views.get(self._require(request.path_params["workflow_id"]))
        changes: dict[str, Any] = {"parts": {}}
        if reading.value is not None:
            changes = migration_changes(reading.value, datetime.now(UTC))
        return _changes(changes, reading)

    async def download(self, request: Request) -> Response:
        """Return the report of a migration as a file, or its whole view before its end."""
        workflow_id = self._require(request.path_params["workflow_id"])
        view = (await self._views.get(workflow_id)).value
        if view is None:
            raise HTTPProblem(HTTPStatus.NOT_FOUND, f"there is no report of {workflow_id} yet")
        name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in workflow_id)
        text = printable_json((view.report or view).model_dump_json(indent=2))
        headers = {"Content-Disposition": f'attachment; filename="{name}.json"'}
        return Response(text, media_type="application/json", headers=headers)

    def _require(self, workflow_id: str) -> str:
        """Return a workflow id that this page serves.

        Raises:
            HTTPProblem: it serves another one only.
        """
        if self._only and workflow_id != self._only and not workflow_id.startswith(f"{self._only}/"):
            raise HTTPProblem(HTTPStatus.NOT_FOUND, f"this page serves {self._only} only; start another one")
        return workflow_id

    async def _read_view(self, workflow_id: str) -> View:
        return await read_view(self._client, workflow_id, limit=QUERY_LIMIT, children=SHOWN_CHILDREN)

    async def _read_list(self, _: str) -> list[Listed]:
        return await list_migrations(self._client, ended=True, limit=LISTED + 1)


def _cause_of(problem: Problem | None) -> Problem:
    return problem or Problem("nothing was read yet.", "reload the page")


def _html(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return HTMLResponse(text, status, headers=_SECURITY)


def _changes(changes: dict[str, Any], reading: Reading[Any]) -> Response:
    """Return what a browser replaces, and why it may be old."""
    problem, at = reading.problem, reading.at
    why = {"cause": problem.cause, "cure": problem.cure} if problem else None
    return JSONResponse({**changes, "problem": why, "at": at.isoformat() if at else None})


def _refused(request: Request, status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        document = problem_document(Problem(reason, ""))
        return HTMLResponse(document, status, headers={**(headers or {}), **_SECURITY})
    return JSONResponse({"reason": reason}, status, headers)


async def _problem(request: Request, error: HTTPProblem) -> Response:
    return _refused(request, error.status, error.reason, error.headers)


async def _http(request: Request, error: HTTPException) -> Response:
    return _refused(request, error.status_code, str(error.detail), dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _refused(request, HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected error; the page's log has the reason")
