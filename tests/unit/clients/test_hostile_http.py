"""HTTP servers that mean harm: bombs, endless and dripping answers, against a client with little memory."""

from __future__ import annotations

import gzip
import socket
import zlib
from collections.abc import Generator
from functools import cache
from itertools import repeat
from pathlib import Path

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2
from clients.pulsar.admin.bodies import LARGEST_BODY, LARGEST_REFUSAL
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminError, AdminProtocolError, AdminServerError, AdminUnreachable
from clients.pulsar.admin.http import HttpSession
from tests.support.clients.destinations import LOOPBACK_PLAIN
from tests.support.hostile import (
    LONG_TIMEOUT,
    TIMEOUT,
    WHOLE,
    HostileServer,
    LittleMemory,
    Script,
    dripping_body,
    dripping_header,
    received,
)

_MIB = 1 << 20
_TOO_MANY = LARGEST_BODY // _MIB + 32
_OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def reader() -> Generator[LittleMemory]:
    """Return a process with little memory."""
    with LittleMemory() as process:
        yield process


@cache
def _zeros(mib: int) -> bytes:
    """Return so many MiB of zeros, packed with gzip."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(_MIB)) for _ in range(mib)), packer.flush()])


def _answer(body: bytes, *, status: bytes = _OK, headers: bytes = b"") -> Script:
    """Return a script that answers with a body."""

    def script(connected: socket.socket) -> None:
        received(connected)
        connected.sendall(status + headers + b"content-length: %d\r\n\r\n" % len(body) + body)
        received(connected)

    return script


def _endless(connected: socket.socket) -> None:
    received(connected)
    connected.sendall(_OK + b"transfer-encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + bytes(_MIB) + b"\r\n"
    for _ in repeat(None):
        connected.sendall(chunk)


def get_clusters(url: str, timeout: float = LONG_TIMEOUT) -> list[str]:
    """Read the names of clusters."""
    with HttpSession(AdminAccess(timeout=timeout)) as session:
        return PulsarAdmin(session, [url]).clusters.names()


def get_with_oauth2(url: str, key: Path, timeout: float = LONG_TIMEOUT) -> list[str]:
    """Read the names of clusters, with a token that is asked for first."""
    auth = ClientCredentials(
        OAuth2(key_file=key, token_url=f"{url}/token", timeout=timeout, destinations=LOOPBACK_PLAIN)
    )
    with HttpSession(AdminAccess(timeout=timeout, auth=auth, destinations=LOOPBACK_PLAIN)) as session:
        return PulsarAdmin(session, [url]).clusters.names()


_GZIP = b"content-encoding: gzip\r\n"
_BOMBS: dict[str, tuple[Script, type[AdminError], str]] = {
    "gzip": (_answer(_zeros(_TOO_MANY), headers=_GZIP), AdminProtocolError, f"more than {LARGEST_BODY:,} bytes"),
    "gzip in gzip": (
        _answer(gzip.compress(_zeros(_TOO_MANY)), headers=b"content-encoding: gzip, gzip\r\n"),
        AdminProtocolError,
        "packed as 'gzip, gzip'",
    ),
    "endless": (_endless, AdminProtocolError, f"more than {LARGEST_BODY:,} bytes"),
    "cut off": (_answer(_zeros(1)[:-20], headers=_GZIP), AdminProtocolError, "ends before its gzip data"),
    "damaged": (_answer(b"x" * 20, headers=_GZIP), AdminProtocolError, "is not gzip"),
    "gzip in a refusal": (
        _answer(_zeros(_TOO_MANY), status=b"HTTP/1.1 503 No\r\n", headers=_GZIP),
        AdminServerError,
        "answered 503",
    ),
    "gzip as a charset": (
        _answer(
            zlib.compress(bytes(64 * _MIB)),
            status=b"HTTP/1.1 503 No\r\n",
            headers=b"content-type: text/plain; charset=zlib\r\n",
        ),
        AdminServerError,
        "answered 503",
    ),
    "deep JSON": (_answer(b"[" * _MIB), AdminProtocolError, "another form"),
    "not UTF-8": (_answer(b'["\xff\xfe"]'), AdminProtocolError, "another form"),
}


@pytest.mark.parametrize("bomb", _BOMBS)
def test_an_answer_that_means_harm_is_a_typed_error(reader: LittleMemory, bomb: str) -> None:
    """No answer takes more memory than the largest legitimate one, and the process continues."""
    script, kind, reason = _BOMBS[bomb]
    with HostileServer(script) as server, pytest.raises(kind, match=reason):
        reader.read(get_clusters, server.url)


@pytest.mark.parametrize("script", [dripping_header, dripping_body])
def test_an_answer_that_drips_ends(reader: LittleMemory, script: Script) -> None:
    """A whole answer has a deadline, however often something of it arrives."""
    with HostileServer(script) as server, pytest.raises(AdminUnreachable, match=f"longer than {WHOLE}"):
        reader.read(get_clusters, server.url, TIMEOUT)


@pytest.mark.parametrize("bomb", ["gzip", "endless"])
def test_a_token_endpoint_has_the_same_limits(reader: LittleMemory, tmp_path: Path, bomb: str) -> None:
    """The server that issues tokens has the limits of brokers."""
    key = tmp_path / "key.json"
    key.write_text('{"client_id": "a", "client_secret": "b"}')
    with HostileServer(_BOMBS[bomb][0]) as server, pytest.raises(AdminProtocolError, match="more than"):
        reader.read(get_with_oauth2, server.url, key)


def test_a_packed_answer_is_read(reader: LittleMemory) -> None:
    """Answers that brokers pack are unpacked."""
    with HostileServer(_answer(gzip.compress(b'["blue", "green"]'), headers=_GZIP)) as server:
        assert reader.read(get_clusters, server.url) == ["blue", "green"]


def test_a_long_refusal_keeps_its_start(reader: LittleMemory) -> None:
    """The reason of a refusal is its first line, whatever follows."""
    body = b"no bundle\n" + b"x" * (4 * LARGEST_REFUSAL)
    with (
        HostileServer(_answer(body, status=b"HTTP/1.1 500 No\r\n")) as server,
        pytest.raises(AdminServerError, match=r"answered 500: no bundle$"),
    ):
        reader.read(get_clusters, server.url)
