"""Hosts that tests send credentials to: servers of this machine alone."""

from __future__ import annotations

from models.destinations import Destinations

LOOPBACK = Destinations(("127.0.0.1", "localhost"))
LOOPBACK_PLAIN = LOOPBACK._replace(allow_plain=True)
