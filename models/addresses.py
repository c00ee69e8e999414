"""Addresses of brokers, as inputs give them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def _url(*schemes: str) -> AfterValidator:
    """Return an address with one of these schemes; a slash at its end is left out."""

    def check(text: str) -> str:
        try:
            parts = urlsplit(text)
            valid = parts.scheme in schemes and bool(parts.hostname)
        except ValueError:
            valid = False
        if not valid or text != text.strip():
            raise ValueError(
                f"invalid address {text!r}; expected {' or '.join(f'{scheme}://host:port' for scheme in schemes)}"
            )
        return text.rstrip("/")

    return AfterValidator(check)


AdminUrl = Annotated[str, _url("http", "https")]
PlainAdminUrl = Annotated[str, _url("http")]
TlsAdminUrl = Annotated[str, _url("https")]
BrokerUrl = Annotated[str, _url("pulsar")]
TlsBrokerUrl = Annotated[str, _url("pulsar+ssl")]
