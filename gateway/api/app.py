"""The application: its paths, its page, and the answers to errors."""

from __future__ import annotations

import logging
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.answers import Health
from gateway.api import scalable, segments
from gateway.api.access import Authorizer
from gateway.api.parameters import refusals
from gateway.controllers import ControllerNotFound, Controllers, UpdateRejected
from gateway.errors import HTTPProblem
from gateway.registrations import Registrar
from gateway.settings import GatewaySettings
from gateway.topics import Topics

MAX_BODY_BYTES = 1 << 20
"""Bytes; a thousand names of subscriptions need a fifth of it."""

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


def build_app(controllers: Controllers, settings: GatewaySettings, authorizer: Authorizer) -> FastAPI:
    """Return the application of one gateway.

    Args:
        controllers: client of the workflows.
        settings: of the process.
        authorizer: authorizes requests.
    """
    # Serves the page's files itself: operators' networks often have no internet access.
    app = FastAPIOffline(
        title="Scalable topics", description=_DESCRIPTION, version=_version(), openapi_tags=_TAGS, redoc_url=None
    )
    app.state.authorizer = authorizer
    app.state.topics = Topics(controllers, settings)
    app.state.registrar = Registrar(controllers)
    app.state.consumer_timeout = settings.consumer_deadline.total_seconds()
    app.add_middleware(BodyLimit)
    app.include_router(scalable.router)
    app.include_router(segments.router)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> Health:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        """Return that the process serves."""
        return Health()

    unavailable = HTTPStatus.SERVICE_UNAVAILABLE.value

    @app.get("/readyz", tags=["health"], responses={unavailable: refusals()[unavailable]})
    async def readyz() -> Health:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        """Return that Temporal answers."""
        await controllers.require_temporal()
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


def _answer(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"reason": reason}, status, headers)


def _refusal(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPProblem)
    return _answer(error.status, error.reason, error.headers)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, UpdateRejected | ControllerNotFound)
    return _refusal(request, error.refusal)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(map(str, error_item['loc'][1:]))}: {error_item['msg']}" for error_item in error.errors()]
    # As brokers of Pulsar 5.0 answer a wrong number of segments.
    return _answer(HTTPStatus.PRECONDITION_FAILED, "; ".join(faults))


def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, str(error.detail), {**(error.headers or {})})


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed unexpectedly", request.method, request.url.path, exc_info=error)
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"unexpected: {type(error).__name__}; see the gateway's log")


class BodyLimit:
    """Refuses requests whose body exceeds `MAX_BODY_BYTES`.

    Args:
        app: the protected application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {MAX_BODY_BYTES:,} bytes")
            return message

        await self._app(scope, counted, send)
