"""An authority and certificates signed by it, made by the JDK's keytool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.toolchain import Toolchain

PASSWORD = "only-for-tests"
# Each call is a JVM of its own, which lives for half a second.
_LIGHT = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto"]
_JAVA = Path(__file__).parent / "java"
_PEM = _JAVA / "PrivateKeyPem.java"


class Identity(NamedTuple):
    """Identity with a certificate.

    Attributes:
        keystore: PKCS12 file with key and certificate.
        cert_file: PEM file of the certificate.
        key_file: PEM file of the key.
        pem_file: PEM file of both, and of the authority's certificate.
    """

    keystore: Path
    cert_file: Path
    key_file: Path
    pem_file: Path


class Authority:
    """Signs certificates.

    Args:
        tools: whose JDK has keytool.
        folder: where all files go.

    Attributes:
        cert_file: PEM file of its certificate.
        truststore: PKCS12 file of the same.
        password_file: holds the password of all keystores.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        self._tools, self._folder = tools, folder
        self._store = folder / "authority.p12"
        self.cert_file = folder / "authority.pem"
        self.truststore = folder / "trust.p12"
        self.password_file = folder / "password"
        self.password_file.write_text(PASSWORD)
        self._keytool(self._store, "-genkeypair", "-keyalg", "EC", "-dname", "CN=authority", "-ext", "bc:c")
        self.cert_file.write_bytes(self._keytool(self._store, "-exportcert", "-rfc"))
        self._keytool(self.truststore, "-importcert", "-noprompt", "-file", str(self.cert_file))

    def identity(self, name: str, host: str, *, alias: str = "", expired: bool = False) -> Identity:
        """Sign a certificate for a server at a host's address, which may also have a name as its alias."""
        alternatives = f"san=ip:{host}" + (f",dns:{alias}" if alias else "")
        made = self._own(name, alternatives)
        request = self._keytool(made.keystore, "-certreq")
        period = ["-startdate", "-2d", "-validity", "1"] if expired else []
        signed = self._keytool(self._store, "-gencert", "-rfc", "-ext", alternatives, *period, given=request)
        chain = signed + self.cert_file.read_bytes()
        self._keytool(made.keystore, "-importcert", "-noprompt", given=chain)
        return self._written(made, signed, chain)

    def self_signed(self, name: str, host: str) -> Identity:
        """Return a certificate for a host's address that no authority signed."""
        made = self._own(name, f"san=ip:{host}")
        certificate = self._keytool(made.keystore, "-exportcert", "-rfc")
        return self._written(made, certificate, certificate)

    def _own(self, name: str, alternatives: str) -> Identity:
        made = Identity(*(self._folder / f"{name}{suffix}" for suffix in (".p12", ".pem", ".key", ".chain.pem")))
        self._keytool(made.keystore, "-genkeypair", "-keyalg", "EC", "-dname", f"CN={name}", "-ext", alternatives)
        return made

    def _written(self, made: Identity, certificate: bytes, chain: bytes) -> Identity:
        command = JavaProgram(_PEM, self._tools).command(str(made.keystore), "mykey", PASSWORD)
        key = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
        made.cert_file.write_bytes(certificate)
        made.key_file.write_bytes(key)
        made.pem_file.write_bytes(key + chain)
        return made

    def _keytool(self, store: Path, *arguments: str, given: bytes = b"") -> bytes:
        return _keytool(self._tools, store, *arguments, given=given)


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
        _keytool(tools, self._store, "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=issuer")
        self.cert_file.write_bytes(_keytool(tools, self._store, "-exportcert", "-rfc"))

    def token(self, **claims: str | int) -> str:
        """Return a token with these claims."""
        program = JavaProgram(_JAVA / "SignedToken.java", self._tools)
        command = program.command(str(self._store), "mykey", PASSWORD, json.dumps(claims))
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def _keytool(tools: Toolchain, store: Path, *arguments: str, given: bytes = b"") -> bytes:
    keytool = str(tools.java.with_name("keytool"))
    options = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "mykey"]
    command = [keytool, *_LIGHT, *arguments, *options]
    return subprocess.run(command, input=given, check=True, capture_output=True, timeout=60).stdout
