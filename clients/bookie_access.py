"""TLS settings for bookies."""

from __future__ import annotations

from typing import NamedTuple

from clients.errors import DestinationRefused
from clients.tls import Tls
from models.destinations import Destinations


class BookieAccess(NamedTuple):
    """TLS settings for the bookies of a cluster; plain data, so that it can be sent to an executor.

    Attributes:
        tls: TLS settings; None for no TLS.
        destinations: hosts that may be connected to.
    """

    tls: Tls | None = None
    destinations: Destinations = Destinations()

    def check(self, host: str) -> None:
        """Check that a bookie may be connected to: registrations in the metadata store name its host.

        Raises:
            DestinationRefused: the settings do not allow it.
        """
        encrypted = self.tls is not None
        if reason := self.destinations.objection(host, encrypted=encrypted, secret=False, tls=encrypted):
            raise DestinationRefused(f"connecting to a bookie at {host}: {reason}", server=host)
