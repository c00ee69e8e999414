"""The right to lead a topic, which rests while the cluster's metadata are being moved to another store.

Our records are copied as all others are. While services are kept from writing (PIP-454, "Migration State"), what we
wrote to the previous store would be lost with it; only the flag prevents that.
"""

from __future__ import annotations

import time

from activities.pulsar.exclusion import metadata_on_the_move
from clients.cas.claims import ClaimKeeper, VersionedClaim
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreContention
from models.lifecycle.claim import Attempt, Claim

_MOVED = "METADATA_MOVED"


class LeaderClaim(Claim):
    """The lease of a topic's controller, as it is stored.

    Attributes:
        lost_at_ms: when an attempt was given up last, in milliseconds since 1970; what it was about to ask of a broker
            may still arrive.
    """

    lost_at_ms: int = 0


class LeaderLease(ClaimKeeper[LeaderClaim]):
    """The lease of one attempt, checked right before each write; see `require_active_store`."""

    def __init__(self, store: CasStore, me: Attempt, *, path: str) -> None:
        super().__init__(store, LeaderClaim, me, path=path)
        self._metadata = store

    def successor(self, claim: LeaderClaim | None, **fields: object) -> LeaderClaim:
        """Return the claim that replaces another one.

        It notes a lost attempt, unless the other claim belongs to an earlier step of this run: that step has ended.
        """
        new = super().successor(claim, **fields)
        if claim is None or claim.holder == self.me:
            return new
        given_up = claim.run_id != self.me.run_id or claim.epoch == self.me.epoch
        return new.model_copy(update=_lost_now()) if given_up else new

    def note_lost(self) -> None:
        """Note that an earlier attempt may have been abandoned, even if it has the same run id.

        Raises:
            ClaimHeld, Superseded: see `ClaimKeeper.renew`.
        """
        self.renew(**_lost_now())

    def release_unused(self) -> None:
        """Release the lease of an attempt that has changed nothing on brokers; it stays if an attempt was lost before.

        Raises:
            ClaimHeld, Superseded: see `ClaimKeeper.release`.
        """
        if not self.require().lost_at_ms:
            self.release()

    def take(self, **fields: object) -> LeaderClaim:
        """Take the lease; see `ClaimKeeper`.

        Raises:
            StoreContention, StoreConflict: the metadata are being moved, or were moved.
        """
        require_active_store(self._metadata)
        return super().take(**fields)

    def _required(self) -> VersionedClaim[LeaderClaim]:
        require_active_store(self._metadata)  # mutant: topic-controller/writes-into-a-store-that-is-left
        return super()._required()


def _lost_now() -> dict[str, int]:
    return {"lost_at_ms": time.time_ns() // 1_000_000}


def require_active_store(store: CasReader) -> None:
    """Check that brokers use this store, and may write to it.

    Raises:
        StoreContention: a migration blocks writes; this is temporary.
        StoreConflict: the metadata have moved to another store.
    """
    blocker = metadata_on_the_move(store)
    if blocker is None:
        return
    if blocker.code == _MOVED:
        raise StoreConflict(
            f"{blocker.cause}; terminate this controller, and start it with the metadata_url of the other store"
        )
    raise StoreContention(f"changes of the topic wait until the metadata have moved: {blocker.cause}")
