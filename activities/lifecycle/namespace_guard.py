"""The right to change one namespace of a cluster, and the record that says what was changed there."""

from __future__ import annotations

from typing import Generic

from clients.cas.claims import ClaimKeeper, ClaimT, read_claim, require_newest
from clients.cas.store import CasReader, CasStore
from clients.errors import Superseded
from models.lifecycle.claim import NAMESPACES, Attempt, Claim, namespace_record


class NamespaceGuard(Generic[ClaimT]):
    """The right of one attempt of the migration that holds a cluster to change one of its namespaces.

    Args:
        store: the cluster's metadata store.
        me: the attempt.
        namespace: `tenant/namespace`.
        record: model of the namespace's record.
    """

    def __init__(self, store: CasStore, me: Attempt, namespace: str, record: type[ClaimT]) -> None:
        self.namespace = namespace
        self.store = store
        self._me = me
        self._record = ClaimKeeper(store, record, me, path=namespace_record(namespace))

    def take(self) -> ClaimT:
        """Take the namespace's record for this attempt; every earlier one stops.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run does not hold the migration's claim, or a newer attempt has begun.
        """
        self._require_migration()
        return self._record.take()

    def require(self) -> ClaimT:
        """The fence, asked right before each change.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run has ended, or a newer attempt has begun.
        """
        self._require_migration()
        return self._record.require()

    def read(self) -> ClaimT | None:
        """The record, whoever holds it."""
        held = self._record.read()
        return held.claim if held else None

    def note(self, **fields: object) -> ClaimT:
        """Write into the record what is about to be changed, or was.

        Raises:
            ClaimHeld, Superseded: see `require`.
        """
        self._require_migration()
        return self._record.renew(**fields)

    def release(self) -> None:
        """Remove the record."""
        self._require_migration()
        self._record.release()

    def _require_migration(self) -> None:
        held = read_claim(self.store, Claim)
        claim = held.claim if held else None
        # Batches run side by side, so whoever of the same run renewed the migration's claim last is no newer attempt.
        if claim is None or not claim.is_of(self._me):
            require_newest(claim, self._me, str(self.store.url))
            raise Superseded(f"{self._me} does not hold {self.store.url} any more; a late attempt stops")


def recorded_namespaces(store: CasReader) -> list[str]:
    """`tenant/namespace` of all that have a record, whichever kind of migration has written it."""
    return [
        f"{tenant}/{name}" for tenant in store.children(NAMESPACES) for name in store.children(f"{NAMESPACES}/{tenant}")
    ]
