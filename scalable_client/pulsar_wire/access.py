"""Addresses of brokers, and the credentials of clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pulsar_wire.errors import ConnectionLost, HostNotAllowed, InvalidServiceUrl
from pulsar_wire.hosts import is_listed

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker or of a proxy.

    Attributes:
        host: name or IP address.
        port: of the binary protocol.
        secure: whether it takes TLS.
    """

    host: str
    port: int
    secure: bool = False

    def __str__(self) -> str:
        scheme = "pulsar+ssl" if self.secure else "pulsar"
        return f"{scheme}://[{self.host}]:{self.port}" if ":" in self.host else f"{scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Access:
    """How brokers are talked to.

    Attributes:
        operation_timeout: seconds for a request and its answer.
        connection_timeout: seconds to connect and for the handshake.
        keep_alive: seconds of silence after which the client sends a keep-alive request; after as many more without
            an answer the connection is given up.
        token: for token authentication, or a function that returns it each time that a broker asks; None for no token.
        token_hosts: hosts that may receive the token, as `pulsar_wire.hosts` lists them; None for every host.
        tls: for addresses with TLS; None for the system's authorities.
        certificate_auth: without a token, authenticate with the client's TLS certificate.
        listener_name: the brokers' advertised listener whose addresses this client needs; empty for the
            one that it is connected to.
        client_version: what brokers show as the version of this client.
        protocol_version: the highest that this client speaks.
        scalable_topics: whether this client knows scalable topics of Pulsar 5.
    """

    operation_timeout: float = 30.0
    connection_timeout: float = 10.0
    keep_alive: float = 30.0
    token: str | Callable[[], str] | None = None
    token_hosts: tuple[str, ...] | None = None
    tls: ssl.SSLContext | None = None
    certificate_auth: bool = False
    listener_name: str = ""
    client_version: str = "pulsar-scalable-python"
    # Of Pulsar 5.0.1.
    protocol_version: int = 21
    scalable_topics: bool = True

    def check_host(self, host: str) -> None:
        """Check that a host may receive the token.

        Raises:
            HostNotAllowed: it may not.
        """
        if self.token is not None and self.token_hosts is not None and not is_listed(host, self.token_hosts):
            raise HostNotAllowed(
                f"{host} would receive the token, and the application did not name it; if it belongs to the cluster,"
                f" add it to token_hosts (now: {', '.join(self.token_hosts)})"
            )

    def credentials(self) -> tuple[str, bytes] | None:
        """Return the authentication method and its data; None without authentication.

        Raises:
            ConnectionLost: the function that returns tokens failed.
        """
        token = token_now(self.token)
        if token is not None:
            return "token", token.encode()
        return ("tls", b"") if self.certificate_auth else None


def token_now(token: str | Callable[[], str] | None) -> str | None:
    """Return a token; call the application's function if it is one.

    Raises:
        ConnectionLost: the function failed; the next attempt calls it again.
    """
    if not callable(token):
        return token
    try:
        return token()
    except Exception as cause:
        raise ConnectionLost(f"the function that returns tokens failed: {cause!r}") from cause


def addresses(url: str) -> list[Address]:
    """Return all addresses of a service URL, `pulsar://host:port,host:port`.

    Raises:
        InvalidServiceUrl: it is not a service URL.
    """
    scheme, _, rest = url.partition("://")
    expected = "expected pulsar://host:port or pulsar+ssl://host:port"
    if scheme not in _PORTS or not rest.strip("/"):
        raise InvalidServiceUrl(f"invalid service URL {url!r}; {expected}")
    result: list[Address] = []
    for endpoint in rest.rstrip("/").split(","):
        try:
            split = urlsplit(f"//{endpoint}")
            host, port = split.hostname, split.port
        except ValueError as cause:
            raise InvalidServiceUrl(f"invalid service URL {url!r}: {endpoint!r}: {cause}; {expected}") from cause
        if not host:
            raise InvalidServiceUrl(f"invalid service URL {url!r}: {endpoint!r} has no host; {expected}")
        result.append(Address(host, port or _PORTS[scheme], secure=scheme == "pulsar+ssl"))
    return result


def tls_context(
    *,
    trust_certs_file: str | None = None,
    certificate_file: str | None = None,
    private_key_file: str | None = None,
    allow_insecure: bool = False,
    validate_hostname: bool = True,
) -> ssl.SSLContext:
    """Return a context for TLS connections.

    Args:
        trust_certs_file: authorities, PEM; None for the system's.
        certificate_file: of this client, PEM, where brokers want one.
        private_key_file: of that certificate.
        allow_insecure: take any certificate.
        validate_hostname: whether a certificate must name the broker's host.
    """
    context = ssl.create_default_context(cafile=trust_certs_file)
    context.check_hostname = validate_hostname and not allow_insecure
    if allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    if certificate_file:
        context.load_cert_chain(certificate_file, private_key_file)
    return context
