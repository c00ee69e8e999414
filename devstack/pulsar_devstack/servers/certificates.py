"""An authority and certificates signed by it, made by the JDK's keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from pulsar_devstack.servers.java_programs import JAVA_SOURCES, JavaProgram
from pulsar_devstack.servers.toolchain import Toolchain

PASSWORD = "not-a-secret"  # noqa: S105 - the folder protects its files
"""The password of all keystores."""
# Each call is a JVM of its own, which lives for half a second.
_LIGHT = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto"]
_PEM = JAVA_SOURCES / "PrivateKeyPem.java"


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

    def identity(self, name: str, host: str, *, alias: str = "", expired: bool = False, unit: str = "") -> Identity:
        """Sign a certificate for a server at a host's address.

        Args:
            name: the common name, and that of the files.
            host: the address.
            alias: a name of the host besides.
            expired: whether its validity has ended.
            unit: the organizational unit, from which bookies take roles.
        """
        alternatives = f"san=ip:{host}" + (f",dns:{alias}" if alias else "")
        made = self._own(name, alternatives, unit)
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

    def _own(self, name: str, alternatives: str, unit: str = "") -> Identity:
        made = Identity(*(self._folder / f"{name}{suffix}" for suffix in (".p12", ".pem", ".key", ".chain.pem")))
        subject = f"CN={name}, OU={unit}" if unit else f"CN={name}"
        self._keytool(made.keystore, "-genkeypair", "-keyalg", "EC", "-dname", subject, "-ext", alternatives)
        return made

    def _written(self, made: Identity, certificate: bytes, chain: bytes) -> Identity:
        command = JavaProgram(_PEM, self._tools).command(str(made.keystore), "mykey", PASSWORD)
        key = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
        made.cert_file.write_bytes(certificate)
        made.key_file.write_bytes(key)
        made.pem_file.write_bytes(key + chain)
        return made

    def _keytool(self, store: Path, *arguments: str, given: bytes = b"") -> bytes:
        return keytool(self._tools, store, *arguments, given=given)


def keytool(tools: Toolchain, store: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run keytool on a keystore, and return what it prints."""
    program = str(tools.java.with_name("keytool"))
    options = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "mykey"]
    command = [program, *_LIGHT, *arguments, *options]
    return subprocess.run(command, input=given, check=True, capture_output=True, timeout=60).stdout
