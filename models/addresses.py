"""Addresses of brokers, as inputs give them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def _url(*schemes: str, path: bool = False) -> AfterValidator:
    """Check an address: a scheme, a host and a port. A slash at its end is left out.

    A user and a password would be stored in histories. A path or a query would turn a request to a broker into one to
    any other service.

    Args:
        schemes: one of these is required.
        path: whether it may have a path, as behind a proxy.
    """

    def check(text: str) -> str:
        if "@" in text:
            # Without the text, which may have a secret.
            raise ValueError("an address has a user or a password; set credentials in the worker's settings instead")
        try:
            parts = urlsplit(text)
            valid = parts.scheme in schemes and bool(parts.hostname) and (path or not parts.path.strip("/"))
        except ValueError:
            valid = False
        if not valid or text != text.strip() or "?" in text or "#" in text:
            raise ValueError(
                f"invalid address {text!r}; expected {' or '.join(f'{scheme}://host:port' for scheme in schemes)}"
            )
        return text.rstrip("/")

    return AfterValidator(check)


AdminUrl = Annotated[str, _url("http", "https")]
WebUrl = Annotated[str, _url("http", "https", path=True)]
PlainAdminUrl = Annotated[str, _url("http")]
TlsAdminUrl = Annotated[str, _url("https")]
BrokerUrl = Annotated[str, _url("pulsar")]
TlsBrokerUrl = Annotated[str, _url("pulsar+ssl")]


def is_loopback(host: str) -> bool:
    """Return whether only the local machine can connect to a server that listens on a name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
