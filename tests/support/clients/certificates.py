"""An authority and certificates signed by it, made by the JDK's keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.toolchain import Toolchain

PASSWORD = "only-for-tests"
# Each call is a JVM of its own, which lives for half a second.
_LIGHT = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto"]
_PEM = Path(__file__).parent / "java" / "PrivateKeyPem.java"


class Identity(NamedTuple):
    """Identity with a certificate.

    Attributes:
        keystore: PKCS12 file with key and certificate.
        cert_file: PEM file of the certificate.
        key_file: PEM file of the key.
    """

    keystore: Path
    cert_file: Path
    key_file: Path


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

    def identity(self, name: str, host: str) -> Identity:
        """Sign a certificate for a server at a host's address."""
        made = Identity(*(self._folder / f"{name}{suffix}" for suffix in (".p12", ".pem", ".key")))
        self._keytool(made.keystore, "-genkeypair", "-keyalg", "EC", "-dname", f"CN={name}")
        request = self._keytool(made.keystore, "-certreq")
        signed = self._keytool(self._store, "-gencert", "-rfc", "-ext", f"san=ip:{host}", given=request)
        made.cert_file.write_bytes(signed)
        chain = signed + self.cert_file.read_bytes()
        self._keytool(made.keystore, "-importcert", "-noprompt", given=chain)
        command = JavaProgram(_PEM, self._tools).command(str(made.keystore), "mykey", PASSWORD)
        made.key_file.write_bytes(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
        return made

    def _keytool(self, store: Path, *arguments: str, given: bytes = b"") -> bytes:
        keytool = str(self._tools.java.with_name("keytool"))
        options = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "mykey"]
        command = [keytool, *_LIGHT, *arguments, *options]
        return subprocess.run(command, input=given, check=True, capture_output=True, timeout=60).stdout
