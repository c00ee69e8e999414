"""The claim in the target: which attempt may write there, and how fast."""

from __future__ import annotations

from clients.cas.claims import ClaimKeeper, read_claim
from clients.cas.store import CasStore, Delete, retry
from clients.errors import StoreConflict
from clients.stores import Access, open_cas_reader
from models.lifecycle.claim import Attempt
from models.metadata_store.claims import SOURCE, TARGET, SourceClaim, TargetClaim
from models.migration_flag import FLAG
from models.store_url import StoreUrl


def refuse_one_store(source: StoreUrl, target: StoreUrl, me: Attempt, access: Access) -> None:
    """Refuse a target that holds the source, or lies in it, under other names of its servers.

    Addresses do not show it: with `zk:127.0.0.1` and `zk:localhost` a source was once emptied as its own target. So the
    new claim on the source is searched at the target's addresses.

    Raises:
        StoreConflict: the claim is there, or a record that is not a claim.
    """
    if not source.overlaps(target.model_copy(update={"hosts": source.hosts})):
        return
    with open_cas_reader(target.model_copy(update={"root": source.root}), access) as store:
        held = read_claim(store, SourceClaim)
    # An earlier attempt's claim on a target with the same root has this path too.
    if held and held.claim.side == SOURCE and held.claim.is_of(me):
        raise StoreConflict(
            f"the claim of this migration on its source is also in {target}: source and target are the same store, or "
            "one contains the other"
        )


class TargetKeeper(ClaimKeeper[TargetClaim]):
    """The claim in the target on behalf of one attempt.

    Args:
        store: the target.
        me: the attempt.
        source: from where it copies.
    """

    def __init__(self, store: CasStore, me: Attempt, source: str) -> None:
        super().__init__(store, TargetClaim, me)
        self._source = source

    def is_held(self) -> bool:
        """Return whether this migration, in this run or an earlier one, holds the target."""
        held = self.read()
        return held is not None and held.claim.workflow_id == self.me.workflow_id and held.claim.side == TARGET

    def claim(self, throttle: float | None) -> TargetClaim:
        """Claim the target for this attempt; every earlier attempt stops within a second.

        Raises:
            ClaimHeld: another migration holds the target.
            Superseded: a newer attempt or run has begun.
        """
        held = self.read()
        # The copy of an earlier run from another source is not a copy of this source.
        fields = {} if held and held.claim.source == self._source else {"source": self._source, "ours": False}
        return self.take(side=TARGET, throttle=throttle, **fields)

    def forget_flag(self) -> None:
        """Remove a migration flag from the target: a COMPLETED one would send services on to another store.

        Raises:
            StoreConflict: this attempt does not hold the target, which services may use now.
        """

        def forget() -> None:
            if (flag := self._store.get(FLAG)) is not None:
                self._store.transaction([self.guard(), Delete(FLAG, flag.version)])

        retry(forget, FLAG)
