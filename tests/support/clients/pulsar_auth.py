"""Brokers that ask for tokens and speak TLS, and a token endpoint whose tokens they accept."""

from __future__ import annotations

import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from pulsar_devstack.servers.tokens import TokenSigner
from tests.support.clients.certificates import PASSWORD, Authority, Identity
from tests.support.http_server import HttpServer

SUPERUSER = "admin"
_ANYBODY = "anybody"


class TokenKey(TokenSigner):
    """Signs tokens for tests."""

    def broker_settings(self, superuser: str = SUPERUSER) -> dict[str, str]:
        """Return lines of `broker.conf`: who has no token is a role without rights, and the superuser may do all."""
        # The stack looks without a token whether a broker is ready.
        return {**self.broker_lines(superuser, superuser), "anonymousUserRole": _ANYBODY}


def tls_settings(authority: Authority, identity: Identity, *, ask_for_certificate: bool = False) -> dict[str, str]:
    """Return lines of `broker.conf` for HTTPS in addition to HTTP, on a port that the system chooses."""
    return {
        "webServicePortTls": "0",
        "tlsEnabledWithKeyStore": "true",
        "tlsKeyStoreType": "PKCS12",
        "tlsKeyStore": str(identity.keystore),
        "tlsKeyStorePassword": PASSWORD,
        "tlsTrustStoreType": "PKCS12",
        "tlsTrustStore": str(authority.truststore),
        "tlsTrustStorePassword": PASSWORD,
        "tlsRequireTrustedClientCertOnConnect": str(ask_for_certificate).lower(),
    }


class TokenEndpoint(HttpServer):
    """An OAuth2 server for client credentials on 127.0.0.1; a context manager.

    Args:
        key: signs the tokens.
        folder: where the key file lies.

    Attributes:
        issuer_url: has the metadata.
        token_url: gives tokens.
        key_file: the credentials that it accepts.
        asked: forms of the requests for tokens that came with the right secret.
        life: seconds that its tokens live.
        promised: seconds that it says they live.
    """

    def __init__(self, key: TokenKey, folder: Path) -> None:
        super().__init__(_handler(self))
        self._key = key
        self._secret = secrets.token_hex(16)
        self.asked: list[dict[str, str]] = []
        self.life = self.promised = 3600.0
        self.issuer_url = f"{self.base_url}/realm"
        self.token_url = f"{self.issuer_url}/token"
        self.key_file = folder / "credentials.json"
        key_file = {"type": "client_credentials", "client_id": "migrate", "client_secret": self._secret}
        self.key_file.write_text(json.dumps({**key_file, "issuer_url": self.issuer_url}))

    def grant(self, form: dict[str, str]) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return status and JSON of the answer to a request for a token."""
        if (form.get("client_id"), form.get("client_secret")) != ("migrate", self._secret):
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client", "error_description": "no such client"}
        self.asked.append(form)
        token = self._key.token(SUPERUSER, life=self.life)
        return HTTPStatus.OK, {"access_token": token, "token_type": "Bearer", "expires_in": self.promised}


def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection to the endpoint."""

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

        def do_GET(self) -> None:
            """Return the metadata."""
            if self.path == "/realm/.well-known/openid-configuration":
                self._answer(HTTPStatus.OK, {"issuer": endpoint.issuer_url, "token_endpoint": endpoint.token_url})
            else:
                self._answer(HTTPStatus.NOT_FOUND, {"error": "not_found"})

        def do_POST(self) -> None:
            """Return a token."""
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(*endpoint.grant({name: values[0] for name, values in form.items()}))

        def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler
