"""Credentials, login (SASL) and TLS settings for ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from clients.errors import DestinationRefused, NoCredentials
from clients.sasl import Login
from clients.secret_files import secret_text
from clients.tls import Tls, zookeeper_tls
from models.credentials import Credentials, zookeeper_pairs, zookeeper_secrets
from models.destinations import Destinations
from models.redaction import remember

#: Host and service that ZooKeeper's servers expect in a login, whatever their own are (SecurityUtils.java).
SASL_HOST = ("zk-sasl-md5", "zookeeper")


@dataclass(frozen=True)
class ZooKeeperAccess:
    """Credentials and TLS settings for ZooKeeper; plain data, so that it can be sent to an executor.

    Files are read for each connection, so that renewed ones are used.

    Attributes:
        auth: credentials for `addauth`, each scheme and credential, for example `("digest", b"user:password")`.
        auth_file: file with further ones, one `scheme:credential` in a line; empty for none.
        login: name and password (SASL DIGEST-MD5); None for no login.
        tls: TLS settings; None for a plain connection.
        destinations: hosts that may receive the credentials.
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    auth_file: str = ""
    login: Login | None = None
    tls: Tls | None = None
    destinations: Destinations = field(default_factory=Destinations)

    @classmethod
    def of(cls, credentials: Credentials, destinations: Destinations) -> Self:
        """Create it from a set of credentials, for these hosts.

        Raises:
            ValueError: one of them is invalid, or a file cannot be read.
        """
        made = cls(
            auth=zookeeper_pairs([entry.get_secret_value() for entry in credentials.zookeeper_auth]),
            auth_file=credentials.zookeeper_auth_file,
            login=Login.of(credentials, "zookeeper"),
            tls=zookeeper_tls(credentials),
            destinations=destinations,
        )
        try:
            made.auth_pairs()
        except NoCredentials as error:
            raise ValueError(str(error)) from error
        return made

    @property
    def has_identity(self) -> bool:
        """Whether a server can know us again, so that nodes can be protected for us."""
        return bool(self.auth or self.auth_file or self.login or (self.tls and self.tls.cert_file))

    def check(self, host: str) -> None:
        """Check that a server may be connected to.

        Raises:
            DestinationRefused: the settings do not allow it.
        """
        encrypted, has_secret = self.tls is not None, bool(self.auth or self.auth_file or self.login)
        if reason := self.destinations.objection(host, encrypted=encrypted, secret=has_secret, tls=encrypted):
            raise DestinationRefused(f"connecting to ZooKeeper at {host}: {reason}", server=host)

    def auth_pairs(self) -> tuple[tuple[str, bytes], ...]:
        """Return all credentials for `addauth`, those of the file included.

        Raises:
            NoCredentials: the file cannot be read, or an entry has no scheme.
        """
        pairs = self.auth
        if self.auth_file:
            try:
                pairs += zookeeper_pairs(secret_text(self.auth_file, "zookeeper_auth_file").splitlines())
            except ValueError as error:
                raise NoCredentials(f"{error} ({self.auth_file})") from error
        for _, credential in pairs:
            remember(*zookeeper_secrets(credential.decode()))
        return pairs


#: Plain connections without any credentials.
ANONYMOUS = ZooKeeperAccess()
