"""A ZooKeeper that takes only TLS with client certificates and logins, and accesses to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clients.sasl import Login
from clients.tls import Tls
from clients.zookeeper.access import ZooKeeperAccess
from pulsar_devstack.servers.spec import ZooKeeperSecurity
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.clients.certificates import Authority, Identity
from tests.support.clients.destinations import LOOPBACK

USER = "migrate"
OTHER = "other"
"""Another user."""
PASSWORD = "planted-4c1d77"
"""Of both."""
HOST = "127.0.0.1"


class SecureZooKeeper:
    """Certificates for one.

    Args:
        tools: make the certificates.
        folder: where all files go.

    Attributes:
        authority: signs the certificates.
        security: for `StackSpec`.
        access: what a worker needs.
        other: what another client of the server has.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        self.authority = Authority(tools, folder)
        self.security = ZooKeeperSecurity(
            authorities=self.authority.cert_file,
            server=self.authority.identity("server", HOST, alias="localhost").pem_file,
            client=self.authority.identity("stack", HOST).pem_file,
            users={"pulsar": "only-for-tests", USER: PASSWORD, OTHER: PASSWORD},
            login_required=True,
        )
        tls = self.tls(self.authority.identity("worker", "127.0.0.9"))
        self.access = ZooKeeperAccess(login=Login("zookeeper", USER, PASSWORD), tls=tls, destinations=LOOPBACK)
        other = self.tls(self.authority.identity("other", "127.0.0.8"))
        self.other = ZooKeeperAccess(login=Login("zookeeper", OTHER, PASSWORD), tls=other, destinations=LOOPBACK)

    def tls(self, identity: Identity | None) -> Tls:
        """Return settings with this certificate of ours."""
        files = (str(identity.cert_file), str(identity.key_file)) if identity else (None, None)
        return Tls(str(self.authority.cert_file), *files)

    def access_with(self, identity: Identity | None) -> ZooKeeperAccess:
        """Return the access with another certificate of ours."""
        return replace(self.access, tls=self.tls(identity))
