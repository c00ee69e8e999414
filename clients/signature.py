"""Signatures of requests as "Standard Webhooks" 1.0 defines them, so that receivers can use its libraries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Generator
from typing import NamedTuple

import httpx
from pydantic import SecretStr

from clients.errors import NoCredentials
from clients.secret_files import secret_text
from models.hooks import keys_of
from models.redaction import remember


class SecretKeys(NamedTuple):
    """Keys of signatures.

    Attributes:
        value: secrets as text; empty for none.
        file: file with secrets instead, which is read for each request.
        setting: names the file in errors.
    """

    value: SecretStr
    file: str
    setting: str

    @property
    def given(self) -> bool:
        """Whether a secret is set."""
        return bool(self.file or self.value.get_secret_value())

    def read(self) -> tuple[bytes, ...]:
        """Return the keys; during a change of the secret more than one.

        Raises:
            NoCredentials: the file cannot be read, or has no valid secret.
        """
        text = secret_text(self.file, self.setting) if self.file else self.value.get_secret_value()
        remember(*text.split())
        try:
            return keys_of(text)
        except ValueError as error:
            raise NoCredentials(f"{self.setting}: {error}") from None


def signature_headers(keys: tuple[bytes, ...], message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request.

    Args:
        keys: one signature for each.
        message_id: of the message, the same in each attempt; without a full stop, which separates the signed parts.
        seconds: time of this attempt, since the epoch.
        body: of the request.
    """
    signed = f"{message_id}.{seconds}.".encode() + body
    codes = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{code}" for code in codes),
    }


class Signed(httpx.Auth):
    """Signs each request.

    Args:
        keys: of the signature.
        message_id: of the message.
        other: further credentials; None for none.
    """

    requires_request_body = True

    def __init__(self, keys: SecretKeys, message_id: str, other: httpx.Auth | None = None) -> None:
        self._keys = keys
        self._id = message_id
        self._other = other

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the headers of the signature, and those of the other credentials.

        Raises:
            NoCredentials: the secret cannot be read.
        """
        request.headers.update(signature_headers(self._keys.read(), self._id, int(time.time()), request.content))
        if self._other is None:
            yield request
        else:
            yield from self._other.auth_flow(request)
