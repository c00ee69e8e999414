"""How brokers are talked to in their binary protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx

from clients.errors import StoreDenied
from clients.pulsar.admin.access import AdminAccess
from clients.tls import Tls
from models.destinations import Destinations
from pulsar_wire.access import Access

NOTE = "pulsar-migrate"
"""Key in the metadata of our producers and consumers, by which statistics show whose they are."""


@dataclass(frozen=True)
class WireAccess:
    """Timeout, TLS and credentials; plain data, so that it travels to an executor.

    Attributes:
        timeout: longest wait for a connection and for each answer, in seconds.
        auth: credentials, whose token is sent; None for none.
        tls: how TLS is done, with our own certificate as credentials where there is no token.
        destinations: hosts that may receive the token.
    """

    timeout: float = 10.0
    auth: httpx.Auth | None = None
    tls: Tls = field(default_factory=Tls)
    destinations: Destinations = field(default_factory=Destinations)

    @classmethod
    def of(cls, access: AdminAccess, *, timeout: float = 10.0) -> WireAccess:
        """Return the same credentials as for the admin interface; each connection gets the token that is valid then.

        Raises:
            AdminError: a token cannot be had now.
            StoreDenied: the credentials are not a token.
        """
        made = cls(timeout=timeout, auth=access.auth, tls=access.tls, destinations=access.destinations)
        made.token()
        return made

    @property
    def admin(self) -> AdminAccess:
        """The same credentials for the admin interface, where only these travelled."""
        return AdminAccess(timeout=self.timeout, auth=self.auth, tls=self.tls, destinations=self.destinations)

    def objection(self, host: str, *, encrypted: bool) -> str:
        """Return why nothing may be sent to a host; empty if it may."""
        return self.admin.objection(host, encrypted=encrypted)

    def connecting(self, *, secure: bool) -> Access:
        """Return the same for a connection, with certificates as they are in their files now.

        Raises:
            OSError: a certificate cannot be read.
            AdminError: a token cannot be had.
        """
        return Access(
            operation_timeout=self.timeout,
            connection_timeout=self.timeout,
            token=self.token() or None,
            tls=self.tls.context() if secure else None,
            certificate_auth=self.tls.cert_file is not None,
            client_version="pulsar-migrate",
            # The first that clients of today's brokers need not go beyond: acknowledgements are answered from 17 on.
            protocol_version=19,
            scalable_topics=False,
        )

    def token(self) -> str:
        """Return the token that is valid now; empty for none.

        Raises:
            AdminError: it cannot be had.
            StoreDenied: the credentials are not a token.
        """
        if self.auth is None:
            return ""
        flow = self.auth.sync_auth_flow(httpx.Request("GET", "https://token.invalid/"))
        try:
            kind, _, token = next(flow).headers.get("Authorization", "").partition(" ")
        finally:
            flow.close()
        if kind != "Bearer" or not token:
            raise StoreDenied(
                "the brokers' credentials are not a token; only tokens can be sent in the binary protocol"
            )
        return token
