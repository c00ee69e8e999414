"""Tokens (JWT, HS256) as brokers take them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Any

DAY = 86_400.0
"""Seconds that tokens of a stack are valid for."""


class TokenSigner:
    """Signs tokens.

    Args:
        secret: the key; a new one by default.

    Attributes:
        secret: what brokers verify tokens with.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = secret or secrets.token_bytes(32)

    def token(self, subject: str, *, life: float = 3600.0) -> str:
        """Return a token for a role; with a negative life it has expired."""
        head = _base64({"alg": "HS256", "typ": "JWT"})
        claims = _base64({"sub": subject, "exp": int(time.time() + life)})
        signature = hmac.digest(self.secret, f"{head}.{claims}".encode(), hashlib.sha256)
        return f"{head}.{claims}.{_encode(signature)}"

    def broker_lines(self, superusers: str, own_role: str) -> dict[str, str]:
        """Return lines of `broker.conf` for tokens and authorization.

        Args:
            superusers: roles that may do everything, separated by commas.
            own_role: the role with which the broker calls other brokers.
        """
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"data:;base64,{base64.b64encode(self.secret).decode()}",
            "superUserRoles": superusers,
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.token(own_role, life=DAY)}",
        }


def _base64(fields: dict[str, Any]) -> str:
    return _encode(json.dumps(fields).encode())


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
