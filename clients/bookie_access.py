"""Login (SASL) and TLS settings for bookies."""

from __future__ import annotations

from typing import NamedTuple, Self

from clients.errors import DestinationRefused
from clients.sasl import Login
from clients.tls import Tls, bookies_tls
from models.credentials import Credentials
from models.destinations import Destinations


class BookieAccess(NamedTuple):
    """Login and TLS settings for the bookies of a cluster; plain data, so that it can be sent to an executor.

    Attributes:
        tls: TLS settings; None for no TLS.
        destinations: hosts that may be connected to.
        login: name and password (SASL DIGEST-MD5); None for no login.
    """

    tls: Tls | None = None
    destinations: Destinations = Destinations()
    login: Login | None = None

    @classmethod
    def of(cls, credentials: Credentials, destinations: Destinations) -> Self:
        """Create it from a set of credentials, for these hosts.

        Raises:
            ValueError: a file of the login cannot be read.
        """
        return cls(bookies_tls(credentials), destinations, Login.of(credentials, "bookie"))

    def check(self, host: str) -> None:
        """Check that a bookie may be connected to: registrations in the metadata store name its host.

        Raises:
            DestinationRefused: the settings do not allow it.
        """
        encrypted, secret = self.tls is not None, self.login is not None
        if reason := self.destinations.objection(host, encrypted=encrypted, secret=secret, tls=encrypted):
            raise DestinationRefused(f"connecting to a bookie at {host}: {reason}", server=host)
