"""Hosts that may receive a set of credentials, and whether their links must be encrypted."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_wire.hosts import is_listed


class Destinations(NamedTuple):
    """Destinations of one set of credentials; plain data, so that it can be sent to an executor.

    Attributes:
        hosts: exact names, names with a leading dot for all hosts of a domain, addresses, and networks (CIDR).
        allow_plain: whether secrets may go over links that are not encrypted.
        setting: beginning of the names of this set's settings, for messages.
    """

    hosts: tuple[str, ...] = ()
    allow_plain: bool = False
    setting: str = "PULSAR_MIGRATE_"

    def objection(self, host: str, *, encrypted: bool, secret: bool, tls: bool = False) -> str:
        """Return why nothing may be sent to a host, with the cure; empty if it may.

        Args:
            host: name or address, without a port.
            encrypted: whether the link has TLS.
            secret: whether the link carries a secret: then the set must list its hosts.
            tls: whether there are TLS settings for the link: then it must have TLS, too.
        """
        if secret and not self.hosts:
            return f"no hosts are listed for these credentials; cure: set {self.setting}HOSTS={host}"
        # mutant: shared/credentials-to-any-host
        if self.hosts and not is_listed(host, self.hosts):
            cure = f"add it to {self.setting}HOSTS if it belongs to the cluster"
            return f"{host} is not among the hosts of these credentials ({', '.join(self.hosts)}); cure: {cure}"
        # mutant: shared/credentials-in-clear-text
        if (secret or tls) and not encrypted and not self.allow_plain:
            reason = "credentials are" if secret else "TLS is"
            cure = f"use TLS, or set {self.setting}ALLOW_PLAIN=true"
            return f"{reason} set for {host}, and the link is not encrypted; cure: {cure}"
        return ""
