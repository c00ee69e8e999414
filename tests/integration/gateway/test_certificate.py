"""A certificate that is renewed while a server uses it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from gateway.process import follow
from tests.integration.gateway.conftest import HOST
from tests.support.clients.certificates import Authority, Identity
from tests.support.waiting import wait_for, wait_until_equal


def der_of(identity: Identity) -> bytes:
    """Return a certificate as connections show it."""
    return ssl.PEM_cert_to_DER_cert(identity.cert_file.read_text())


def test_a_renewed_certificate_is_used(authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New connections get the old certificate as long as the key of the new one is missing, and then the new one."""
    old, new = authority.identity("old", HOST), authority.identity("new", HOST)
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shutil.copy(old.cert_file, certificate)
    shutil.copy(old.key_file, key)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    trusted = ssl.create_default_context(cafile=authority.cert_file)

    def shown(port: int) -> bytes | None:
        plain = socket.create_connection((HOST, port), timeout=30)
        with trusted.wrap_socket(plain, server_hostname=HOST) as connection:
            return connection.getpeercert(binary_form=True)

    def renew(port: int) -> None:
        assert shown(port) == der_of(old)
        shutil.copy(new.cert_file, certificate)
        wait_for("the pair to be refused", lambda: "cannot be used" in caplog.text, 60)
        assert shown(port) == der_of(old)
        shutil.copy(new.key_file, key)
        wait_until_equal("the new one", lambda: shown(port), der_of(new), 60)

    async def serve() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), HOST, ssl=served) as server:
            following = asyncio.create_task(follow(served, certificate, key, every=0.05))
            await asyncio.to_thread(renew, server.sockets[0].getsockname()[1])
            following.cancel()

    asyncio.run(serve())
