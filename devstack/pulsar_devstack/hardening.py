"""Stacks whose links are all encrypted and authenticated, and the credentials of their clients."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import TokenFile
from clients.tls import Tls
from models.destinations import Destinations
from pulsar_devstack.servers.certificates import Authority
from pulsar_devstack.servers.configs import LOOPBACK
from pulsar_devstack.servers.spec import PulsarSecurity, StackSpec, ZooKeeperSecurity
from pulsar_devstack.servers.tokens import DAY, TokenSigner
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_access import ClientAccess

SUPERUSER, APPLICATION = "superuser", "application"
"""Roles with a token: one that may do everything, and one for producers and consumers."""
_BROKERS, _WORKER = "brokers", "worker"
_BOOKIE_ROLE = "bookie-client"
_VARIABLE = "HARDENED"


def is_wanted() -> bool:
    """Return whether the environment asks for hardened servers: `HARDENED=1`."""
    return os.environ.get(_VARIABLE, "") not in ("", "0")


@dataclass(frozen=True)
class Hardening:
    """Certificates, passwords and tokens in a folder, which stacks and their clients share.

    Attributes:
        folder: where all files are.
    """

    folder: Path

    @classmethod
    def make(cls, tools: Toolchain, folder: Path) -> Self:
        """Create all files, in a new folder."""
        folder.mkdir(mode=0o700, parents=True)
        authority = Authority(tools, folder)
        authority.identity("server", LOOPBACK, alias="localhost")
        for name in (_BROKERS, _WORKER):
            authority.identity(name, LOOPBACK, unit=f"0:{_BOOKIE_ROLE}")
            (folder / f"{name}.password").write_text(secrets.token_hex(16))
        (folder / "token.secret").write_bytes(TokenSigner().secret)
        made = cls(folder)
        for role in (SUPERUSER, APPLICATION):
            made.token_file(role)
        return made

    @property
    def authorities(self) -> Path:
        """File with the certificate that all others are checked against."""
        return self.folder / "authority.pem"

    def harden(self, spec: StackSpec) -> StackSpec:
        """Return the same stack, with TLS on each port for clients, and with authentication and authorization."""
        server, client = self.folder / "server.chain.pem", self.folder / f"{_BROKERS}.chain.pem"
        users = {name: self._password(name).read_text() for name in (_BROKERS, _WORKER)}
        return spec.model_copy(
            update={
                "zookeeper_security": ZooKeeperSecurity(
                    authorities=self.authorities, server=server, client=client, users=users, login_required=True
                ),
                "pulsar_security": PulsarSecurity(
                    authorities=self.authorities,
                    server=server,
                    client=client,
                    token_key=self.folder / "token.secret",
                    broker_role=_BROKERS,
                    superusers=(SUPERUSER,),
                    bookie_role=_BOOKIE_ROLE,
                ),
            }
        )

    def token_file(self, role: str) -> Path:
        """Return the file with the token of a role; it is valid for a day."""
        file = self.folder / f"{role}.token"
        if not file.exists():
            file.write_text(TokenSigner((self.folder / "token.secret").read_bytes()).token(role, life=DAY))
        return file

    def credentials(self, role: str = SUPERUSER) -> dict[str, str]:
        """Return a worker's set of credentials for these stacks, by the names of settings without their prefix.

        Args:
            role: the role at brokers.
        """
        certificate = str(self.folder / f"{_WORKER}.chain.pem")
        return {
            "HOSTS": LOOPBACK,
            "ADMIN_TOKEN_FILE": str(self.token_file(role)),
            "ADMIN_TLS_CA": str(self.authorities),
            "ZOOKEEPER_SASL_USERNAME": _WORKER,
            "ZOOKEEPER_SASL_PASSWORD_FILE": str(self._password(_WORKER)),
            "ZOOKEEPER_TLS_CA": str(self.authorities),
            "ZOOKEEPER_TLS_CERTIFICATE": certificate,
            "BOOKIE_TLS_CA": str(self.authorities),
            "BOOKIE_TLS_CERTIFICATE": certificate,
        }

    def admin_access(self, role: str = SUPERUSER) -> AdminAccess:
        """Return access to admin interfaces."""
        auth = TokenFile(self.token_file(role))
        return AdminAccess(30, auth, Tls(str(self.authorities)), Destinations((LOOPBACK,)))

    def client_access(self, role: str = APPLICATION) -> ClientAccess:
        """Return what producers and consumers need."""
        return ClientAccess(self.token_file(role).read_text(), str(self.authorities))

    def _password(self, name: str) -> Path:
        return self.folder / f"{name}.password"
