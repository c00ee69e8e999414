"""The application: its paths, its page, and the answers to errors."""

from __future__ import annotations

import logging
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from gateway.access.authenticator import Authenticator
from gateway.access.principals import Principal, Role
from gateway.answers import Health
from gateway.api import scalable, segments
from gateway.api.body_limit import BodyLimit
from gateway.api.gate import Gate
from gateway.api.parameters import refusals
from gateway.api.readiness import Readiness
from gateway.controllers import ControllerNotFound, Controllers, UpdateRejected
from gateway.errors import HTTPProblem
from gateway.metrics import GatewayMetrics
from gateway.registrations import Registrar
from gateway.settings import GatewaySettings
from gateway.topics import Topics

_PAGE = ("/docs", "/docs/oauth2-redirect", "/openapi.json", "/static-offline-docs/")
_HIDDEN = "not available now; retry later, the request may still be applied; the gateway's log has the reason"
_MAX_REASON = 2000

_log = logging.getLogger(__name__)

_DESCRIPTION = """
Scalable topics (PIP-468) on brokers without a built-in controller. A Temporal workflow controls each topic, and this
gateway is the REST interface of these workflows. Paths, bodies and status codes are those of Pulsar 5 brokers, so that
tools work unchanged; registrations of consumers and some statistics are additions.

Every error is `{"reason": …}` with cause and cure. 503 has `Retry-After`; the request may still be applied.
"""
_TAGS = [
    {"name": "topics", "description": "Scalable topics as a whole."},
    {"name": "subscriptions", "description": "Subscriptions of a topic."},
    {"name": "consumers", "description": "Sessions of consumers of ordered subscriptions."},
    {"name": "segments", "description": "Segments of a topic: each has a range of hashes and its own topic."},
    {"name": "health", "description": "For the operator of the gateway; needs no token."},
]


def build_app(
    controllers: Controllers,
    settings: GatewaySettings,
    authenticator: Authenticator,
    metrics: GatewayMetrics | None = None,
) -> FastAPI:
    """Return the application of one gateway.

    Args:
        controllers: client of the workflows.
        settings: of the process.
        authenticator: authenticates requests.
        metrics: count the requests; None for no metrics.
    """
    shared: dict[str, Any] = {
        "title": "Scalable topics",
        "description": _DESCRIPTION,
        "version": _version(),
        "openapi_tags": _TAGS,
    }
    # Serves the page's files itself: operators' networks often have no internet access.
    app = FastAPIOffline(redoc_url=None, **shared) if settings.api_page else FastAPI(openapi_url=None, **shared)
    app.state.topics = Topics(controllers, settings)
    app.state.registrar = Registrar(controllers)
    app.state.consumer_timeout = settings.consumer_deadline.total_seconds()
    app.add_middleware(BodyLimit)
    # Added last, so it is passed first.
    app.add_middleware(
        Gate,
        authenticator=authenticator,
        hosts=settings.own_hosts,
        rate=settings.requests_per_second,
        most=settings.max_requests,
        open_paths=_PAGE if settings.api_page else (),
        metrics=metrics,
    )
    app.include_router(scalable.router)
    app.include_router(segments.router)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> Health:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        """Return that the process serves."""
        return Health()

    unavailable = HTTPStatus.SERVICE_UNAVAILABLE.value
    readiness = Readiness(controllers.require_temporal)

    @app.get("/readyz", tags=["health"], responses={unavailable: refusals()[unavailable]})
    async def readyz() -> Health:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        """Return that Temporal answers; the reason why it does not is in the log."""
        await readiness.require()
        return Health()

    for kind, answer in (
        (HTTPProblem, _refusal),
        (UpdateRejected, _refused),
        (ControllerNotFound, _refused),
        (RequestValidationError, _invalid),
        (HTTPException, _http),
        (Exception, _unexpected),
    ):
        app.add_exception_handler(kind, answer)
    return app


def _version() -> str:
    try:
        return version("pulsar-migrate")
    except PackageNotFoundError:
        return "0"


def _answer(request: Request, status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not _may_see_servers(request):
        _log.warning("%s %s: %s", request.method, request.url.path, reason)
        reason = _HIDDEN if status == HTTPStatus.SERVICE_UNAVAILABLE else "the gateway's log has the reason"
    return JSONResponse({"reason": reason}, status, headers)


def _may_see_servers(request: Request) -> bool:
    """Return whether reasons may name servers, queues and stores."""
    principal: Principal | None = getattr(request.state, "principal", None)
    return principal is not None and principal.role is Role.ADMIN


def _refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPProblem)
    return _answer(request, error.status, error.reason, error.headers)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, UpdateRejected | ControllerNotFound)
    return _refusal(request, error.refusal)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(map(str, error_item['loc'][1:]))}: {error_item['msg']}" for error_item in error.errors()]
    # As brokers of Pulsar 5.0 answer a wrong number of segments.
    return _answer(request, HTTPStatus.PRECONDITION_FAILED, "; ".join(faults)[:_MAX_REASON])


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail), {**(error.headers or {})})


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed unexpectedly", request.method, request.url.path, exc_info=error)
    reason = f"unexpected: {type(error).__name__}; see the gateway's log"
    return _answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, reason)
