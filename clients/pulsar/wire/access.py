"""How brokers are talked to in their binary protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from clients.errors import StoreDenied
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.tls import Tls

NOTE = "pulsar-migrate"
"""Key in the metadata of our producers and consumers, by which statistics show whose they are."""

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True)
class WireAccess:
    """Timeout, TLS and credentials; plain data, so that it travels to an executor.

    Attributes:
        timeout: longest wait for a connection and for each answer, in seconds.
        token: that is sent; empty for none. It is never shown.
        tls: how TLS is done, with our own certificate as credentials where there is no token.
    """

    timeout: float = 10.0
    token: str = field(default="", repr=False)
    tls: Tls = field(default_factory=Tls)

    @classmethod
    def of(cls, access: AdminAccess, *, timeout: float = 10.0) -> WireAccess:
        """The same credentials as for the admin interface; a token of OAuth2 is got now.

        Raises:
            AdminError: a token cannot be had.
        """
        return cls(timeout=timeout, token=_token(access), tls=access.tls)

    @property
    def admin(self) -> AdminAccess:
        """The same credentials for the admin interface, where only these travelled."""
        auth = Token(SecretStr(self.token)) if self.token else None
        return AdminAccess(timeout=self.timeout, auth=auth, tls=self.tls)

    @property
    def method(self) -> str:
        """The name of the kind of credentials; empty for none."""
        if self.token:
            return "token"
        return "tls" if self.tls.cert_file else ""


class Address(tuple[bool, str, int]):
    """TLS or not, host and port of a broker."""

    __slots__ = ()

    @property
    def secure(self) -> bool:
        """Whether it is reached by TLS."""
        return self[0]

    @property
    def host(self) -> str:
        """The host."""
        return self[1]

    @property
    def port(self) -> int:
        """The port."""
        return self[2]

    def __str__(self) -> str:
        return f"{'pulsar+ssl' if self.secure else 'pulsar'}://{self.host}:{self.port}"


def addresses(url: str) -> list[Address]:
    """The brokers of `pulsar://host:port[,host:port…]`.

    Raises:
        ValueError: it is no such address.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _PORTS:
        raise ValueError(f"{url!r} is no address of brokers; write pulsar://host:port or pulsar+ssl://host:port")
    found: list[Address] = []
    for one in rest.rstrip("/").split(","):
        parts = urlsplit(f"//{one}")
        if not parts.hostname:
            raise ValueError(f"{url!r} is no address of brokers: {one!r} names no host")
        found.append(Address((scheme == "pulsar+ssl", parts.hostname, parts.port or _PORTS[scheme])))
    return found


def _token(access: AdminAccess) -> str:
    if access.auth is None:
        return ""
    flow = access.auth.sync_auth_flow(httpx.Request("GET", "https://token.invalid/"))
    try:
        kind, _, token = next(flow).headers.get("Authorization", "").partition(" ")
    finally:
        flow.close()
    if kind != "Bearer" or not token:
        raise StoreDenied("the brokers' credentials are no token, and only tokens can be sent in the binary protocol")
    return token
