"""Hooks in a worker's settings: HTTP endpoints and commands that get the events of migrations."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from models.lifecycle.hook_events import EventType
from models.redaction import url_secrets

KEY_FORM = "whsec_ and the base64 of 24 to 64 random bytes"
"""Form of a secret, as "Standard Webhooks" defines it."""

_FEWEST_BYTES, _MOST_BYTES = 24, 64


class Hook(BaseModel):
    """A hook: either an HTTP endpoint or a command.

    Attributes:
        url: address that gets a POST with each event.
        command: program and arguments that run with each event on the standard input.
        secret: signs requests: `whsec_` and base64.
        secret_file: file that holds it instead, and during a change of the secret the previous one in a further line.
        tls_ca: file with the certificates (PEM) that the endpoint's is checked against; empty means the system's.
        tls_certificate: file with our own certificate (PEM), if the endpoint asks for one.
        tls_key: file with its key (PEM); empty if the certificate's file has it.
        allow_plain: whether `url` may be `http://`.
        timeout: longest wait for an answer, and longest run of the command.
        veto: whether the hook is asked before each cut-over, and may refuse it.
        events: types of events that it gets; empty for all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(default="", repr=False)
    command: tuple[str, ...] = Field(default=(), repr=False)
    secret: SecretStr = SecretStr("")
    secret_file: str = ""
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    allow_plain: bool = False
    timeout: timedelta = Field(default=timedelta(seconds=10), gt=timedelta(0), le=timedelta(minutes=1))
    veto: bool = False
    events: tuple[EventType, ...] = ()

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise ValueError("a hook needs either url or command")
        if self.command and (self.secret.get_secret_value() or self.secret_file or self.tls_ca or self.tls_certificate):
            raise ValueError("a command has no secret and no TLS; they belong to a url")
        if self.tls_key and not self.tls_certificate:
            raise ValueError("tls_key needs tls_certificate")
        return self

    @model_validator(mode="after")
    def _address_is_safe(self) -> Self:
        if not self.url:
            return self
        try:
            parts = urlsplit(self.url)
            valid = bool(parts.hostname) and parts.scheme in ("http", "https")
        except ValueError:
            valid = False
        if not valid:
            raise ValueError("invalid url; expected https://host/path")
        if self.url.lower().startswith("http:") and not self.allow_plain:
            raise ValueError("the url has no TLS; use https://, or set allow_plain to true")
        if bool(self.secret.get_secret_value()) == bool(self.secret_file):
            raise ValueError("requests are signed: set either secret or secret_file")
        if text := self.secret.get_secret_value():
            keys_of(text)
        return self

    def wants(self, event: EventType) -> bool:
        """Return whether the hook gets events of a type."""
        return not self.events or event in self.events

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that are given as values."""
        return (self.secret.get_secret_value(), *url_secrets(self.url))


def keys_of(text: str) -> tuple[bytes, ...]:
    """Return the keys of secrets, of which each is a word of a text.

    Raises:
        ValueError: there is none, or one has another form; the message does not have it.
    """
    keys: list[bytes] = []
    for number, word in enumerate(text.split(), 1):
        try:
            key = base64.b64decode(re.sub("^whsec_", "", word), validate=True)
        except binascii.Error:
            key = b""
        if not word.startswith("whsec_") or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
            raise ValueError(f"secret number {number} has another form; expected {KEY_FORM}")
        keys.append(key)
    if not keys:
        raise ValueError(f"there is no secret; expected {KEY_FORM}")
    return tuple(keys)
