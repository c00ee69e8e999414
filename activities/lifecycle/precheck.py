"""Findings of a precheck: blockers, each with its cure, and warnings."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import activity

from clients.errors import (
    DestinationRefused,
    NoCredentials,
    NoServer,
    StoreConflict,
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
    by_class,
)
from clients.pulsar.admin.errors import AdminDenied, AdminDestinationRefused, AdminUntrusted
from models.lifecycle.failures import Blocker

# The nearest base class of an error counts.
_CODES: dict[type[StoreError], tuple[str, str]] = {
    StoreError: ("UNREACHABLE", "check the address, the network and the server's log"),
    NoCredentials: ("DENIED", "do what the cause says, or correct the worker's settings"),
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

_TRIES = 3
"""Attempts of an activity in which a server may be silent; the last one notes it as a blocker, which is final."""


class Findings:
    """Collects blockers and warnings; a check that fails does not stop the other ones."""

    def __init__(self) -> None:
        self.blockers: list[Blocker] = []
        self.warnings: list[str] = []

    def block(self, code: str, cause: str, cure: str) -> None:
        """Note why the migration cannot start."""
        self.blockers.append(Blocker(code=code, cause=cause, cure=cure))

    def block_for(self, error: StoreError, code: str, what: str, cure: str) -> None:
        """Note an error as the reason why the migration cannot start, if it lasts.

        A connection that breaks, or an answer that does not come in time, may be a matter of seconds. The first
        attempts of an activity pass it on, so that Temporal starts another one.

        Args:
            error: of a server or its connection.
            code: of the blocker.
            what: what does not work; the error's text follows.
            cure: what the operator can do.

        Raises:
            StoreUnreachable: a server was silent in one of the first attempts.
        """
        is_silence = isinstance(error, StoreUnreachable) and not isinstance(error, NoServer)
        if is_silence and activity.in_activity() and activity.info().attempt < _TRIES:
            raise error
        self.block(code, f"{what}: {error}", cure)

    def warn(self, text: str) -> None:
        """Note what the operator should know."""
        self.warnings.append(text)

    def check(self, what: str, check: Callable[[], object], *, of: str = "") -> bool:
        """Run a check, and return whether it ran; a `StoreError` becomes a blocker (`block_for`).

        Args:
            what: what cannot be used if the check fails.
            check: may raise `StoreError`.
            of: prefix of the blocker's code, for example `SOURCE`.

        Raises:
            StoreUnreachable: a server was silent in one of the first attempts.
        """
        try:
            check()
        except StoreError as error:
            code, cure = by_class(_CODES, error)
            self.block_for(error, f"{of}_{code}" if of else code, f"{what} cannot be used", cure)
            return False
        return True
