"""The right to change a part of a cluster, and the record of what was changed there."""

from __future__ import annotations

from collections.abc import Container
from typing import Generic
from urllib.parse import unquote

from clients.cas.claims import ClaimKeeper, ClaimT, read_claim, require_newest
from clients.cas.store import CasReader, CasStore, Check
from clients.errors import Superseded
from models.lifecycle.claim import NAMESPACES, Attempt, Claim, namespace_record


class RecordGuard(Generic[ClaimT]):
    """The right of one attempt of the migration that holds a cluster to change a part of it.

    Args:
        store: the cluster's metadata store.
        me: the attempt.
        record: model of the part's record.
        path: of the record.
        ended: first runs of ended migrations, whose records this one may take over.
    """

    def __init__(
        self, store: CasStore, me: Attempt, record: type[ClaimT], path: str, *, ended: Container[str] = ()
    ) -> None:
        self.store = store
        self._me = me
        self._record = ClaimKeeper(store, record, me, path=path, ended=ended)

    def take(self) -> ClaimT:
        """Take the record for this attempt; every earlier attempt stops.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run does not hold the migration's claim, or a newer attempt has started.
        """
        self._require_migration()
        return self._record.take()

    def require(self) -> ClaimT:
        """Check the fence right before a change, and return the record.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run has ended, or a newer attempt has started.
        """
        self._require_migration()
        return self._record.require()

    def check(self) -> Check:
        """Return the fence as an operation of a transaction, so that the transaction fails if it is late.

        Raises:
            ClaimHeld, Superseded: see `require`.
        """
        self._require_migration()
        return self._record.guard()

    def read(self) -> ClaimT | None:
        """Return the record, also if another migration holds it; None without a record."""
        held = self._record.read()
        return held.claim if held else None

    def note(self, **fields: object) -> ClaimT:
        """Write planned or completed changes to the record.

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
        # Batches run concurrently: an attempt of the same run that renewed the claim later is not a newer one.
        if claim is None or not claim.is_of(self._me):
            require_newest(claim, self._me, str(self.store.url))
            raise Superseded(f"{self._me} does not hold {self.store.url} any more; a late attempt stops")


class NamespaceGuard(RecordGuard[ClaimT]):
    """The right of one attempt to change one namespace.

    Args:
        store: the cluster's metadata store.
        me: the attempt.
        namespace: `tenant/namespace`.
        record: model of the namespace's record.
        ended: see `RecordGuard`.
    """

    def __init__(
        self, store: CasStore, me: Attempt, namespace: str, record: type[ClaimT], *, ended: Container[str] = ()
    ) -> None:
        super().__init__(store, me, record, namespace_record(namespace), ended=ended)
        self.namespace = namespace


def recorded_namespaces(store: CasReader) -> list[str]:
    """Return `tenant/namespace` of all namespaces with a record of any kind of migration."""
    return [unquote(name) for name in store.children(NAMESPACES)]
