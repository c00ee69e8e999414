"""Credentials of producers and consumers, in the words of each client library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pulsar_devstack.traffic.pulsar_client import pulsar


@dataclass(frozen=True)
class ClientAccess:
    """A token and trust in brokers' certificates; by default neither.

    Attributes:
        token: sent to brokers; empty for none.
        authorities: PEM file that brokers' certificates are checked against; empty for the system's.
    """

    token: str = field(default="", repr=False)
    authorities: str = ""

    def options(self) -> dict[str, Any]:
        """Return arguments of Pulsar's Python client."""
        options: dict[str, Any] = {}
        if self.token:
            options["authentication"] = pulsar.AuthenticationToken(self.token)
        if self.authorities:
            options |= {"tls_trust_certs_file_path": self.authorities, "tls_validate_hostname": True}
        return options


ANONYMOUS = ClientAccess()
