"""Commands whose connection to Temporal has TLS.

Temporal's development server has no TLS: a double in front of it ends TLS, and sends the bytes on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from process.exit_codes import ExitCode
from pulsar_devstack.servers.provision import Toolchain
from tests.support.clients.certificates import Authority, Identity
from tests.workflows.cli.test_cli import Shell, shell

__all__ = ["shell"]

KEY = "an-api-key-for-tests"
HOST = "127.0.0.1"
FAULTS = {"other-host": "it is another host's", "expired": "it has expired", "self-signed": "its issuer is not trusted"}


@pytest.fixture(scope="module")
def authority(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates."""
    return Authority(toolchain, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def identities(authority: Authority) -> dict[str, Identity]:
    """Certificates of servers, of which only the first one is right, and one of a client."""
    return {
        "own": authority.identity("own", HOST),
        "other-host": authority.identity("other-host", "127.0.0.7"),
        "expired": authority.identity("expired", HOST, expired=True),
        "self-signed": authority.self_signed("self-signed", HOST),
        "client": _readable(authority.identity("client", "127.0.0.9")),
    }


def _readable(own: Identity) -> Identity:
    """Return an identity whose key's file has the public key too: Temporal's SDK needs it, and Java leaves it out."""
    key = load_pem_private_key(own.key_file.read_bytes(), None)
    own.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return own


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            to.write(data)
            await to.drain()
    to.close()


@asynccontextmanager
async def ending_tls(address: str, own: Identity, authority: Authority) -> AsyncGenerator[tuple[str, bytearray]]:
    """Run a server with TLS in front of another one; it asks for a client's certificate.

    Yields its address, and what it has received from clients, without TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert_file, own.key_file)
    context.load_verify_locations(authority.cert_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_server = await asyncio.open_connection(host, int(port))
        answers = asyncio.create_task(_copy(upstream, writer))
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                received.extend(data)
                to_server.write(data)
                await to_server.drain()
        to_server.close()
        await answers

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}", received
    finally:
        server.close()


def variables(authority: Authority, client: Identity | None) -> dict[str, str]:
    """Return Temporal's own variables for TLS, and an API key."""
    files = {"CLIENT_CERT_PATH": client.cert_file, "CLIENT_KEY_PATH": client.key_file} if client else {}
    settings = {f"TEMPORAL_TLS_{name}": str(file) for name, file in files.items()}
    return {"TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority.cert_file), "TEMPORAL_API_KEY": KEY, **settings}


async def test_a_command_through_tls(shell: Shell, authority: Authority, identities: dict[str, Identity]) -> None:
    """With the right certificates on both sides a command works; the API key goes through TLS."""
    async with ending_tls(shell.address, identities["own"], authority) as (address, received):
        secure = Shell(address, shell.client)
        answer = await secure("list", **variables(authority, identities["client"]))
        assert (answer.code, answer.out) == (0, "there are no migrations\n"), answer.err
        assert received.startswith(b"PRI * HTTP/2.0")


@pytest.mark.parametrize("own", FAULTS)
async def test_wrong_certificates_of_temporal(
    shell: Shell, authority: Authority, identities: dict[str, Identity], own: str
) -> None:
    """A server whose certificate is wrong gets nothing, and the error names the certificate."""
    async with ending_tls(shell.address, identities[own], authority) as (address, received):
        answer = await Shell(address, shell.client)("list", **variables(authority, identities["client"]))
        assert answer.code == ExitCode.UNREACHABLE, answer.err
        assert f"its certificate is refused: {FAULTS[own]}" in answer.err
        assert "TEMPORAL_TLS_SERVER_CA_CERT_PATH" in answer.err
        assert KEY not in answer.err
        assert received == b""


async def test_a_client_without_certificate(
    shell: Shell, authority: Authority, identities: dict[str, Identity]
) -> None:
    """A server that asks for a client's certificate refuses a client without one, before it gets the API key."""
    async with ending_tls(shell.address, identities["own"], authority) as (address, received):
        answer = await Shell(address, shell.client)("list", **variables(authority, None))
        assert answer.code == ExitCode.UNREACHABLE, answer.err
        assert "TEMPORAL_TLS_" in answer.err
        assert KEY not in answer.err
        assert received == b""


async def test_no_tls_where_it_is_wanted(shell: Shell, authority: Authority) -> None:
    """A server without TLS gets no API key from a client that wants TLS."""
    answer = await shell("list", **variables(authority, None))

    assert answer.code == ExitCode.UNREACHABLE
    assert KEY not in answer.err
