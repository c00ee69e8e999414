"""Where brokers are, and how clients identify themselves."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pulsar_scalable.errors import ConnectionLost, Unsupported

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's place.

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
        connection_timeout: seconds to connect and to be greeted.
        keep_alive: seconds of silence after which a broker is asked whether it is there; after twice as many the
            connection is given up.
        token: for token authentication, or what gives it each time that a broker asks; None for no authentication.
        tls: for addresses with TLS; None for the system's authorities.
    """

    operation_timeout: float = 30.0
    connection_timeout: float = 10.0
    keep_alive: float = 30.0
    token: str | Callable[[], str] | None = None
    tls: ssl.SSLContext | None = None

    def credentials(self) -> bytes | None:
        """What proves who this client is; None without authentication.

        Raises:
            ConnectionLost: there is no token now.
        """
        found = token_now(self.token)
        return found.encode() if found is not None else None


def token_now(token: str | Callable[[], str] | None) -> str | None:
    """A token, or what the application's function gives now.

    Raises:
        ConnectionLost: the function failed; it is asked again with the next attempt.
    """
    if not callable(token):
        return token
    try:
        return token()
    except Exception as cause:
        raise ConnectionLost(f"the function that gives tokens failed: {cause!r}") from cause


def addresses(url: str) -> list[Address]:
    """All addresses of a service URL, `pulsar://host:port,host:port`.

    Raises:
        Unsupported: it is none.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in _PORTS or not rest.strip("/"):
        raise Unsupported(f"{url!r} is no service URL; pulsar://host:port and pulsar+ssl://host:port are")
    found: list[Address] = []
    for part in rest.rstrip("/").split(","):
        try:
            split = urlsplit(f"//{part}")
            host, port = split.hostname, split.port
        except ValueError as cause:
            raise Unsupported(f"{part!r} in {url!r} is no address: {cause}") from cause
        if not host:
            raise Unsupported(f"{part!r} in {url!r} has no host")
        found.append(Address(host, port or _PORTS[scheme], secure=scheme == "pulsar+ssl"))
    return found


def tls_context(
    *,
    trust_certs_file: str | None = None,
    certificate_file: str | None = None,
    private_key_file: str | None = None,
    allow_insecure: bool = False,
    validate_hostname: bool = True,
) -> ssl.SSLContext:
    """A context for TLS connections.

    Args:
        trust_certs_file: authorities, PEM; None for the system's.
        certificate_file: of this client, PEM, where brokers want one.
        private_key_file: of that certificate.
        allow_insecure: take any certificate.
        validate_hostname: whether a certificate has to name the broker's host.
    """
    context = ssl.create_default_context(cafile=trust_certs_file)
    context.check_hostname = validate_hostname and not allow_insecure
    if allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    if certificate_file:
        context.load_cert_chain(certificate_file, private_key_file)
    return context
