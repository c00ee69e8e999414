"""Findings of a precheck: blockers, each with its cure, and warnings."""

from __future__ import annotations

from collections.abc import Callable

from clients.errors import (
    DestinationRefused,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnsupported,
    by_class,
)
from clients.pulsar.admin.errors import AdminDenied, AdminDestinationRefused, AdminUntrusted
from models.lifecycle.failures import Blocker

# The nearest base class of an error counts.
_CODES: dict[type[StoreError], tuple[str, str]] = {
    StoreError: ("UNREACHABLE", "check the address, the network and the server's log"),
    StoreDenied: ("DENIED", "give the worker credentials in PULSAR_MIGRATE_ZOOKEEPER_AUTH, or change the ACL"),
    DestinationRefused: ("DENIED", "change the worker's settings as the cause says, and restart it"),
    AdminDestinationRefused: ("DENIED", "change the worker's settings as the cause says, and restart it"),
    AdminDenied: ("DENIED", "give the worker a superuser's credentials: PULSAR_MIGRATE_ADMIN_*, or those of the set"),
    AdminUntrusted: ("DENIED", "let the worker trust its certificate: PULSAR_MIGRATE_ADMIN_TLS_CA, or the set's"),
    StoreUnsupported: ("UNSUPPORTED", "do what the cause says, and start again"),
    StoreConflict: ("CONFLICT", "do what the cause says, and start again"),
    StoreNotFound: ("CONFLICT", "do what the cause says, and start again"),
    StoreProtocolError: ("UNREADABLE", "check the address and the path; restore or delete the node that is named"),
}


class Findings:
    """Collects blockers and warnings; a check that fails does not stop the other ones."""

    def __init__(self) -> None:
        self.blockers: list[Blocker] = []
        self.warnings: list[str] = []

    def block(self, code: str, cause: str, cure: str) -> None:
        """Note why the migration cannot start."""
        self.blockers.append(Blocker(code=code, cause=cause, cure=cure))

    def warn(self, text: str) -> None:
        """Note what the operator should know."""
        self.warnings.append(text)

    def check(self, what: str, check: Callable[[], object], *, of: str = "") -> bool:
        """Run a check, and return whether it ran; a `StoreError` becomes a blocker.

        Args:
            what: what cannot be used if the check fails.
            check: may raise `StoreError`.
            of: prefix of the blocker's code, for example `SOURCE`.
        """
        try:
            check()
        except StoreError as error:
            code, cure = by_class(_CODES, error)
            self.block(f"{of}_{code}" if of else code, f"{what} cannot be used: {error}", cure)
            return False
        return True
