"""An Oxia that takes only TLS with client certificates and tokens, and accesses to it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from clients.oxia.access import OxiaAccess
from clients.tls import Tls
from pulsar_devstack.servers.spec import TOKEN_AUDIENCE, TOKEN_ISSUER, OxiaSecurity
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.clients.certificates import Authority, Identity, TokenIssuer
from tests.support.clients.destinations import LOOPBACK

HOST = "127.0.0.1"


class SecureOxia:
    """Certificates and tokens for one.

    Args:
        tools: make the certificates.
        folder: where all files go.

    Attributes:
        authority: signs the certificates.
        security: for `StackSpec`.
        access: what a worker needs.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        self.authority = Authority(tools, folder)
        self._issuer = TokenIssuer(tools, folder)
        self.security = OxiaSecurity(
            authorities=self.authority.cert_file,
            server=self.authority.identity("server", HOST, alias="localhost").pem_file,
            client_certificates=True,
            token_keys=self._issuer.cert_file,
        )
        tls = self.tls(self.authority.identity("worker", "127.0.0.9"))
        self.access = OxiaAccess(token=self.token(), tls=tls, destinations=LOOPBACK)

    def token(self, *, lasts: int = 3600, audience: str = TOKEN_AUDIENCE) -> str:
        """Return a token of this issuer."""
        return self._issuer.token(iss=TOKEN_ISSUER, aud=audience, sub="worker", exp=int(time.time()) + lasts)

    def tls(self, identity: Identity | None) -> Tls:
        """Return settings with this certificate of ours."""
        files = (str(identity.cert_file), str(identity.key_file)) if identity else (None, None)
        return Tls(str(self.authority.cert_file), *files)

    def access_with(self, identity: Identity | None) -> OxiaAccess:
        """Return the access with another certificate of ours."""
        return replace(self.access, tls=self.tls(identity))
