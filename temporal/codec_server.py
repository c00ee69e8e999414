"""The codec server: decrypts payloads for Temporal's Web UI and the `temporal` command line."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import socket
import ssl
from collections.abc import Generator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn, Self
from urllib.parse import urlsplit

import uvicorn
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from models.addresses import is_loopback
from process.exit_codes import CommandFailed, ExitCode, leave
from process.lifetime import report_ready, serve_and_leave, stop_on_signals, withdraw
from process.logs import configure_logs
from process.settings import settings_of
from temporal.codec import PREFIX as PAYLOAD_PREFIX
from temporal.codec import PayloadSettings, codec_of
from temporal.encryption import UNREADABLE, PayloadUnreadable

PREFIX = "PULSAR_MIGRATE_CODEC_SERVER_"

MAX_BODY_BYTES = 16 << 20
"""Largest request: Temporal's messages have at most 4 MiB, and Base64 and JSON add to that."""

_BODY_TIMEOUT = 30.0
_MOST_CONNECTIONS = 200
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
_SHUTDOWN_SECONDS = 5


class CodecServerSettings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_CODEC_SERVER_`.

    Attributes:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        web_ui_origin: address of Temporal's Web UI, whose pages may call; empty lets no web page call.
        tls_certificate: file with the certificate and its chain (PEM).
        tls_key: file with its key (PEM).
        token_sha256: SHA-256 of the bearer token that each request must have, in hexadecimal digits.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8081, ge=0, le=65535)
    web_ui_origin: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    token_sha256: str = Field(default="", pattern=r"^([0-9a-fA-F]{64})?$")

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        if self.web_ui_origin and not _ORIGIN.fullmatch(self.web_ui_origin):
            raise ValueError("web_ui_origin is not an origin; expected scheme, host and port: http://127.0.0.1:8233")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key belong together: set both, or none")
        if not self.is_local and not (self.tls_certificate and self.token_sha256):
            raise ValueError(
                f"host {self.host} would decrypt payloads for every client; set tls_certificate, tls_key and "
                "token_sha256, or host 127.0.0.1"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only the local machine can connect."""
        return is_loopback(self.host)


def run_codec_server(settings: CodecServerSettings, *, ready_file: Path | None = None) -> NoReturn:
    """Serve until SIGTERM (exit code 0), SIGINT (130) or a failure, and end the process.

    Args:
        settings: of this process.
        ready_file: exists while the server is ready, and holds its readiness line.

    Raises:
        CommandFailed: no codec is set; later failures end the process with their exit code.
    """
    configure_logs()
    # A page of the Web UI shows payloads from before the encryption too.
    payloads = settings_of(PayloadSettings, PAYLOAD_PREFIX)
    codec = codec_of(payloads.model_copy(update={"read_plain": True}))
    if codec is None:
        cause = "there is no payload codec, so there is nothing to decode"
        raise CommandFailed(ExitCode.USAGE, cause, f"set {PAYLOAD_PREFIX}KEYS_FILE or {PAYLOAD_PREFIX}CODEC")
    asyncio.run(serve_and_leave(_serve(build_app(codec, settings), settings, ready_file), ready_file, "codec server"))
    leave(ExitCode.UNEXPECTED)


def build_app(codec: PayloadCodec, settings: CodecServerSettings) -> Starlette:
    """Return the application with the endpoints that Temporal's clients call."""
    guard = _Guard(settings)

    async def encode(request: Request) -> Response:
        payloads = await guard.payloads(request)
        return _answer(await codec.encode(payloads))

    async def decode(request: Request) -> Response:
        payloads = await guard.payloads(request)
        decoded = await codec.decode(payloads)
        for payload in decoded:
            if payload.metadata.get("encoding") == UNREADABLE.encode():
                raise PayloadUnreadable(payload.data.decode())
        return _answer(decoded)

    middleware: list[Middleware] = []
    if settings.web_ui_origin:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[settings.web_ui_origin],
            allow_methods=["POST"],
            allow_headers=["authorization", "content-type", "x-namespace"],
            allow_credentials=True,
        )
        middleware.append(cors)
    return Starlette(
        routes=[Route("/encode", encode, methods=["POST"]), Route("/decode", decode, methods=["POST"])],
        middleware=middleware,
        exception_handlers={_Refused: _refuse, PayloadUnreadable: _unreadable},
    )


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class _Guard:
    """Lets requests in whose sender may call."""

    def __init__(self, settings: CodecServerSettings) -> None:
        self._settings = settings
        self._hosts = {"127.0.0.1", "localhost", "::1", settings.host.lower()}
        self._token = bytes.fromhex(settings.token_sha256)

    async def payloads(self, request: Request) -> Sequence[Payload]:
        """Return the payloads of a request.

        Raises:
            _Refused: its sender may not call, or its body is not a list of payloads.
        """
        self._authorize(request)
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                body = await _body(request)
            return Parse(body, Payloads()).payloads
        except TimeoutError:
            raise _Refused(408, f"send the body within {_BODY_TIMEOUT:.0f} s") from None
        except (ParseError, ValueError, TypeError, RecursionError, ClientDisconnect):
            raise _Refused(400, 'send {"payloads": [...]} with payloads as JSON') from None

    def _authorize(self, request: Request) -> None:
        if self._token:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(sha256(given.encode()).digest(), self._token):
                raise _Refused(401, "send the token: Authorization: Bearer TOKEN")
        elif _host_of(request) not in self._hosts:
            # A web page can give its own name the address of this machine.
            raise _Refused(403, "call the codec server as 127.0.0.1 or localhost")
        origin = request.headers.get("origin")
        if origin is not None and origin != self._settings.web_ui_origin:
            raise _Refused(403, f"pages of this origin may not call; {PREFIX}WEB_UI_ORIGIN names the one that may")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _Refused(415, "send Content-Type: application/json")


def _host_of(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


async def _body(request: Request) -> bytes:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise _Refused(413, f"send at most {MAX_BODY_BYTES:,} bytes")
    return bytes(received)


def _answer(payloads: Sequence[Payload]) -> Response:
    return JSONResponse(MessageToDict(Payloads(payloads=payloads)))


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refused)
    return JSONResponse({"error": error.why}, status_code=error.status)


def _unreadable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400)


class _Server(uvicorn.Server):
    """An HTTP server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield


async def _serve(app: Starlette, settings: CodecServerSettings, ready_file: Path | None) -> ExitCode:
    stop = stop_on_signals()
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    try:
        config.load()
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family)
    except (OSError, ssl.SSLError) as error:
        cure = (
            f"set {PREFIX}HOST and {PREFIX}PORT to a free address of this machine, and a PEM certificate with its key"
        )
        raise CommandFailed(ExitCode.USAGE, f"the codec server cannot listen: {error}.", cure) from error
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    scheme, shown = "https" if settings.tls_certificate else "http", settings.host
    shown = f"[{shown}]" if ":" in shown else shown
    report_ready(f"codec server ready: {scheme}://{shown}:{listener.getsockname()[1]}", ready_file)
    await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
    withdraw(ready_file)
    server.should_exit = True
    await serving
    return stop.result() if stop.done() else ExitCode.UNEXPECTED
