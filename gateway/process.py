"""The gateway process: start-up, serving, renewal of its certificate, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import socket
import ssl
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, Protocol

import uvicorn
from starlette.types import ASGIApp

from gateway.access.authenticator import Authenticator
from gateway.access.grants import JwtRoles, Tokens
from gateway.access.jwts import JwtVerifier
from gateway.api.app import build_app
from gateway.connections import IDLE_SECONDS, Connections, allow_files, protocol
from gateway.controllers import Controllers
from gateway.metrics import GatewayMetrics
from gateway.settings import PREFIX, GatewaySettings
from models.file_stamp import stamp_of
from process.exit_codes import CommandFailed, ExitCode, leave
from process.followed_file import FileError
from process.lifetime import report_ready, serve_and_leave, stop_on_signals, withdraw
from process.logs import configure_logs
from process.memory import protect_memory
from temporal.client import connect, server_runtime
from temporal.search_attributes import register_for_server

SHUTDOWN_TIMEOUT = timedelta(seconds=20)
"""Longest wait for requests that are under way; Kubernetes kills after 30 s by default."""

CHECK_INTERVAL_SECONDS = 10.0
"""Seconds between two checks of the files."""

# So many connections are accepted before any of them is looked at.
_BACKLOG = 512
_ANSWER_SECONDS = 60.0
_KEYS = ("jwt_public_key_file", "jwt_secret_key_file")
_log = logging.getLogger(__name__)


def run_gateway(settings: GatewaySettings, *, ready_file: Path | None = None) -> NoReturn:
    """Serve until SIGTERM (exit code 0), SIGINT (130) or a failure, and end the process.

    Args:
        settings: of this process.
        ready_file: exists while the gateway is ready, and holds its readiness line.

    Raises:
        CommandFailed: the log format is unknown; all later failures end the process with their exit code.
    """
    protect_memory()
    faulthandler.enable()
    configure_logs()
    asyncio.run(serve_and_leave(_serve(settings, ready_file), ready_file, "gateway"))
    leave(ExitCode.UNEXPECTED)


async def _serve(settings: GatewaySettings, ready_file: Path | None) -> ExitCode:
    stop = stop_on_signals()
    authenticator = build_authenticator(settings)
    runtime = server_runtime(settings.metrics_address, f"{PREFIX}METRICS_ADDRESS")
    client = await connect(runtime, traced_as="pulsar-migrate-gateway")
    await register_for_server(client)
    metrics = GatewayMetrics(runtime.metric_meter) if settings.metrics_address else None
    app = build_app(Controllers(client, settings), settings, authenticator, metrics)
    server = build_server(app, settings, max(settings.change_deadline, settings.consumer_deadline))
    allow_files(settings.max_connections)
    listener = listen(settings, PREFIX)
    serving = asyncio.create_task(server.serve([listener]))
    renewing = asyncio.create_task(renew_certificate(server.config, settings))
    temporal = f"{client.service_client.config.target_host}/{client.namespace}"
    line = f"gateway ready: {url_of(listener, settings)} cluster={settings.cluster} temporal={temporal}"
    report_ready(line, ready_file)
    await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
    withdraw(ready_file)
    server.should_exit = True
    await serving
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN_TIMEOUT.total_seconds()):
            await app.state.registrar.drain()
    renewing.cancel()
    return stop.result() if stop.done() else ExitCode.UNEXPECTED


class Server(uvicorn.Server):
    """An HTTP server that leaves signals to the process, and limits its connections.

    Args:
        config: settings of uvicorn.
        connections: its open connections.
    """

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the given sockets."""

        def accept() -> asyncio.Protocol:
            return protocol(self._connections, self.config, self.server_state, self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers = [await loop.create_server(accept, sock=listener, backlog=_BACKLOG) for listener in sockets or ()]
        self.started = True


class Listening(Protocol):
    """Settings of a process that serves HTTP: address, limits and TLS, as in `GatewaySettings`."""

    @property
    def host(self) -> str: ...  # noqa: D102 - described there
    @property
    def port(self) -> int: ...  # noqa: D102
    @property
    def max_connections(self) -> int: ...  # noqa: D102
    @property
    def tls_certificate(self) -> str: ...  # noqa: D102
    @property
    def tls_key(self) -> str: ...  # noqa: D102
    @property
    def tls_client_ca(self) -> str: ...  # noqa: D102


def build_server(app: ASGIApp, settings: Listening, longest: timedelta) -> Server:
    """Return the server of an application, whose answers take at most a given time.

    Raises:
        CommandFailed: the certificate of the settings cannot be used.
    """
    connections = Connections(settings.max_connections, IDLE_SECONDS, longest.total_seconds() + _ANSWER_SECONDS)
    return Server(_config(connections.serving(app), settings), connections)


def _config(app: object, settings: Listening) -> uvicorn.Config:
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] - an ASGI application
        lifespan="off",
        log_config=None,
        # The gate writes its own.
        access_log=False,
        http="h11",
        ws="none",
        proxy_headers=False,
        server_header=False,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        ssl_ca_certs=settings.tls_client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
        timeout_graceful_shutdown=round(SHUTDOWN_TIMEOUT.total_seconds()),
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        cause = f"the certificate {settings.tls_certificate} with the key {settings.tls_key}: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, "set a PEM certificate and the key that belongs to it") from error
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


def listen(settings: Listening, prefix: str) -> socket.socket:
    """Return the socket of a server; `prefix` is that of its settings.

    Raises:
        CommandFailed: the address is taken, or is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        cause = f"cannot listen on {settings.host}:{settings.port}: {error}."
        cure = f"set {prefix}HOST and {prefix}PORT to an address of this machine that is free"
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error


def build_authenticator(settings: GatewaySettings) -> Authenticator:
    """Return what authenticates requests.

    Raises:
        CommandFailed: a file of the settings cannot be used.
    """
    if not settings.tokens_file and not settings.has_jwts:
        _log.warning("no tokens_file is set: any local user has full access")
        return Authenticator()
    try:
        tokens = Tokens(Path(settings.tokens_file)) if settings.tokens_file else None
        return Authenticator(tokens, *_jwts(settings)) if settings.has_jwts else Authenticator(tokens)
    except FileError as error:
        names = [name for name in ("tokens_file", "jwt_roles_file", *_KEYS) if getattr(settings, name)]
        cure = f"correct the files of {', '.join(f'{PREFIX}{name.upper()}' for name in names)}"
        raise CommandFailed(ExitCode.USAGE, f"{error}.", cure) from error


def _jwts(settings: GatewaySettings) -> tuple[JwtVerifier, JwtRoles]:
    verifier = JwtVerifier(
        Path(settings.jwt_public_key_file or settings.jwt_secret_key_file),
        public=bool(settings.jwt_public_key_file),
        auth_claim=settings.jwt_auth_claim,
        audience_claim=settings.jwt_audience_claim,
        audience=settings.jwt_audience,
    )
    return verifier, JwtRoles(Path(settings.jwt_roles_file))


async def renew_certificate(config: uvicorn.Config, settings: Listening) -> None:
    """Follow the certificate of a server, if it has one; runs until it is cancelled."""
    if config.ssl is not None:
        await follow(config.ssl, Path(settings.tls_certificate), Path(settings.tls_key))


def url_of(listener: socket.socket, settings: Listening) -> str:
    """Return the address of a server that listens."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"


async def follow(
    context: ssl.SSLContext, certificate: Path, key: Path, every: float = CHECK_INTERVAL_SECONDS
) -> NoReturn:
    """Use a renewed certificate for new connections; runs until it is cancelled.

    Files that do not belong together, as when only one of them is renewed yet, are reported, and the previous ones are
    used until they do.

    Args:
        context: TLS context of the server, with the current certificate.
        certificate: file with the certificate and its chain (PEM).
        key: file with its key (PEM).
        every: seconds between two checks.
    """
    loaded = _stamps(certificate, key)
    while True:
        await asyncio.sleep(every)
        current = _stamps(certificate, key)
        if current == loaded:
            continue
        try:
            # Tried with another context first: one that refuses a pair has lost its previous key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            _log.warning("the certificate has changed and cannot be used (%s); the previous one is used", error)
        else:
            loaded = current
            _log.info("the certificate was renewed")


def _stamps(*files: Path) -> list[tuple[int, ...]]:
    stamps: list[tuple[int, ...]] = []
    for file in files:
        with contextlib.suppress(OSError):
            stamps.append(stamp_of(file))
    return stamps
