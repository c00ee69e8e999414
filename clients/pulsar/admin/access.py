"""Access to admin interfaces: timeout, TLS and credentials, from a worker's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx
from pydantic import SecretStr

from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.tls import Tls, brokers_tls
from models.credentials import Credentials
from models.destinations import Destinations
from models.settings import Settings


@dataclass(frozen=True)
class AdminAccess:
    """Access to admin interfaces; one for each process, so that its sessions share tokens.

    Attributes:
        timeout: longest wait for a connection, and for each part of an answer, in seconds.
        auth: credentials; None for none.
        tls: TLS settings.
        destinations: hosts that may receive the credentials; by default none may.
    """

    timeout: float = 5.0
    auth: httpx.Auth | None = None
    tls: Tls = field(default_factory=Tls)
    destinations: Destinations = field(default_factory=Destinations)

    @property
    def guarded(self) -> bool:
        """Whether TLS is mandatory: because secrets would be sent, or TLS was configured."""
        return self.auth is not None or self.tls.configured

    def objection(self, host: str, *, encrypted: bool) -> str:
        """Return why nothing may be sent to a host; empty if it may."""
        secret = self.auth is not None
        return self.destinations.objection(host, encrypted=encrypted, secret=secret, tls=self.tls.configured)

    @classmethod
    def from_settings(cls, settings: Settings, name: str = "") -> AdminAccess:
        """Return the access with named credentials; the common ones for an empty name.

        Raises:
            UnknownCredentials: the settings have none of this name.
        """
        credentials, destinations = settings.credentials_of(name), settings.destinations_of(name)
        seconds = settings.admin_timeout.total_seconds()
        auth = _auth(credentials, seconds, destinations)
        return cls(seconds, auth, brokers_tls(credentials), destinations)


def token_auth(token: SecretStr, file: str) -> httpx.Auth | None:
    """Return the credentials of a token, given as text or as a file; None without both."""
    if file:
        return TokenFile(Path(file))
    return Token(token) if token.get_secret_value() else None


def _auth(credentials: Credentials, timeout: float, destinations: Destinations) -> httpx.Auth | None:
    if credentials.admin_oauth2_key_file:
        return ClientCredentials(
            OAuth2(
                key_file=Path(credentials.admin_oauth2_key_file.removeprefix("file://")),
                issuer_url=credentials.admin_oauth2_issuer_url,
                token_url=credentials.admin_oauth2_token_url,
                audience=credentials.admin_oauth2_audience,
                scope=credentials.admin_oauth2_scope,
                ca_file=credentials.admin_oauth2_tls_ca or None,
                timeout=timeout,
                destinations=destinations,
            )
        )
    return token_auth(credentials.admin_token, credentials.admin_token_file)
