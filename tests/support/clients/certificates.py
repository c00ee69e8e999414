"""Certificates for tests, as those of the dev stack, and tokens for Oxia."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pulsar_devstack.servers.certificates import PASSWORD, Authority, Identity, keytool
from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.toolchain import Toolchain

__all__ = ["PASSWORD", "Authority", "Identity", "TokenIssuer"]

_JAVA = Path(__file__).parent / "java"


class TokenIssuer:
    """Signs tokens (JWT, RS256).

    Args:
        tools: whose JDK has keytool.
        folder: where all files go.

    Attributes:
        cert_file: PEM file of the certificate that verifies them.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        self._tools, self._store = tools, folder / "issuer.p12"
        self.cert_file = folder / "issuer.pem"
        keytool(tools, self._store, "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=issuer")
        self.cert_file.write_bytes(keytool(tools, self._store, "-exportcert", "-rfc"))

    def token(self, **claims: str | int) -> str:
        """Return a token with these claims."""
        program = JavaProgram(_JAVA / "SignedToken.java", self._tools)
        command = program.command(str(self._store), "mykey", PASSWORD, json.dumps(claims))
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
