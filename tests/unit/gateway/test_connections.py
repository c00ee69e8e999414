"""Connections to a gateway: silent, slow and many ones leave it able to answer. Only controllers are played."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import resource
import ssl
import time
import warnings
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import connections
from gateway.access.authenticator import Authenticator
from gateway.access.grants import Tokens
from gateway.api.app import build_app
from gateway.api.body_limit import BodyLimit
from gateway.process import build_server
from gateway.settings import GatewaySettings
from tests.support.gateway.played import Played
from tests.support.gateway.tokens import token_entry, write
from tests.support.self_signed import self_signed

SILENT = 5000
LONG_TIMEOUT = 60.0
"""Limits of a connection where no test is about them: longer than a busy machine takes for all requests of a test."""
PROMPT = LONG_TIMEOUT / 2
"""Most seconds of an answer, on a busy machine too; one that waits for idle connections to be closed takes longer."""
TOKEN = "operators-token"
TOPIC = "/admin/v2/scalable/acme/shop/orders"


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Raise the limit of open files, as clients and gateway are one process here."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections.allow_files(3 * SILENT)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give connections, handshakes and bodies more time."""
    monkeypatch.setattr("gateway.process.IDLE_SECONDS", LONG_TIMEOUT)
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", LONG_TIMEOUT)
    monkeypatch.setattr(BodyLimit.__init__, "__defaults__", (LONG_TIMEOUT,))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    return self_signed(tmp_path_factory.mktemp("certificate"), "gateway")


class Running:
    """A gateway that serves, and its clients.

    Args:
        port: where it listens.
        tls: context of its clients; None without TLS.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.port = port
        self._tls = tls

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client with a token."""
        scheme, verify = ("https", self._tls) if self._tls else ("http", True)
        return httpx.AsyncClient(
            base_url=f"{scheme}://127.0.0.1:{self.port}",
            verify=verify,
            headers={"Authorization": f"Bearer {TOKEN}"},
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=60,
        )

    async def connect(
        self, data: bytes = b"", *, tls: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, and send something."""
        context = self._tls if tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def seconds_of_health(self) -> float:
        """Return how long an answer of `/healthz` takes."""
        begin = time.monotonic()
        async with self.client() as client:
            assert (await client.get("/healthz")).status_code == 200
        return time.monotonic() - begin


@contextlib.asynccontextmanager
async def running(folder: Path, certificate: tuple[Path, Path] | None = None, **more: Any) -> AsyncGenerator[Running]:
    """Run a gateway with a token."""
    settings: dict[str, Any] = {"cluster": "c", "metadata_url": "zk:zk:2181", "admin_urls": ("http://broker:8080",)}
    if certificate:
        settings |= {"tls_certificate": str(certificate[0]), "tls_key": str(certificate[1])}
    tokens = write(folder / "tokens", token_entry(TOKEN, "admin"))
    given = GatewaySettings.model_validate({**settings, **more})
    server = build_server(
        build_app(Played(), given, Authenticator(Tokens(tokens))), given, datetime.timedelta(seconds=60)
    )
    listener = await asyncio.to_thread(_listen)
    serving = asyncio.create_task(server.serve([listener]))
    context = ssl.create_default_context(cafile=str(certificate[0])) if certificate else None
    try:
        yield Running(listener.getsockname()[1], context)
    finally:
        server.should_exit = server.force_exit = True
        await serving


def _listen() -> Any:
    import socket

    return socket.create_server(("127.0.0.1", 0), backlog=512)


@pytest.mark.parametrize("kind", ["silent", "half a request", "handshake", "silent after the handshake"])
async def test_silent_connections(tmp_path: Path, certificate: tuple[Path, Path], kind: str) -> None:
    """Thousands of connections that send nothing, or half of something, do not keep others out."""
    with_tls = "handshake" in kind
    count = SILENT if kind != "silent after the handshake" else 300
    async with running(tmp_path, certificate if with_tls else None, max_connections=200) as gateway:
        data = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: " if kind == "half a request" else b""
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        slowest = 0.0
        for number in range(count):
            with contextlib.suppress(ConnectionError):
                opened.append(await gateway.connect(data, tls=kind == "silent after the handshake"))
            if number % 250 == 249:
                slowest = max(slowest, await gateway.seconds_of_health())
        slowest = max(slowest, await gateway.seconds_of_health())
        assert slowest < PROMPT
        async with asyncio.timeout(PROMPT):
            # The client may not have read the end of the last ones.
            while sum(not (reader.at_eof() or reader.exception()) for reader, _ in opened) > 200:  # noqa: ASYNC110 - a stream announces no end
                await asyncio.sleep(0.05)
        for _, writer in opened:
            writer.close()


async def test_silent_connections_are_closed(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a complete request is closed in time, whatever it sends, and also after an answer."""
    monkeypatch.setattr("gateway.process.IDLE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.3)
    async with running(tmp_path) as gateway:
        reader, writer = await gateway.connect(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        for data in (b"", b"GET / HTTP/1.1\r\n"):
            slow, sending = await gateway.connect(data)

            async def drip(sending: asyncio.StreamWriter = sending, data: bytes = data) -> None:
                with contextlib.suppress(ConnectionError):
                    while data:
                        sending.write(b"X: 1\r\n")
                        await sending.drain()
                        await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            async with asyncio.timeout(PROMPT):
                with contextlib.suppress(ConnectionError):
                    assert await slow.read() == b""
            dripping.cancel()
        async with asyncio.timeout(PROMPT):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
    async with running(tmp_path, certificate) as gateway, asyncio.timeout(PROMPT):
        reader, _ = await gateway.connect(tls=False)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_slow_bodies(tmp_path: Path) -> None:
    """Slow bodies do not keep others out: without a token they are not read, and with one they take no answer along."""
    async with running(tmp_path, max_connections=64) as gateway:
        head = f"PUT {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n"
        for _ in range(200):
            reader, _writer = await gateway.connect(f"{head}\r\n{{".encode())
            assert (await reader.readline()).split()[1] in {b"401", b"429"}
            await reader.read()
        slow = f"{head}Authorization: Bearer {TOKEN}\r\n\r\n{{".encode()
        opened = [await gateway.connect(slow) for _ in range(60)]
        assert await gateway.seconds_of_health() < PROMPT
        async with gateway.client() as client:
            assert (await client.get(TOPIC)).status_code == 503
        for _, writer in opened:
            writer.close()


async def test_bodies_have_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not arrive in time is answered with 408, and its connection ends."""
    monkeypatch.setattr(BodyLimit.__init__, "__defaults__", (0.2,))
    async with running(tmp_path) as gateway, asyncio.timeout(PROMPT):
        head = f"PUT {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Type: application/json\r\n"
        reader, _ = await gateway.connect(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        await reader.read()


async def test_requests_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Many requests are served over TLS, also several on one connection; TLS before 1.2 is refused."""
    async with running(tmp_path, certificate) as gateway:
        async with gateway.client() as client:
            answers = await asyncio.gather(*(client.get(TOPIC) for _ in range(200)))
            assert {answer.status_code for answer in answers} == {200}
        request = f"GET {TOPIC} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        reader, writer = await gateway.connect(request)
        for _ in range(3):
            assert (await reader.readline()).split()[1] == b"200"
            length = 0
            while (line := await reader.readline()) != b"\r\n":
                length = int(line.split()[1]) if line.startswith(b"content-length") else length
            await reader.readexactly(length)
            writer.write(request)
        writer.close()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", gateway.port, ssl=old)
