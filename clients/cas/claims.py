"""Take, check and release a claim on behalf of one attempt."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from clients.cas.store import CasReader, CasStore, Check, Set, retry
from clients.errors import ClaimHeld, StoreConflict, Superseded, VersionConflict
from models.base import faults
from models.lifecycle.claim import CLAIM, Attempt, Claim
from models.store_url import StoreUrl

ClaimT = TypeVar("ClaimT", bound=Claim)


class VersionedClaim(NamedTuple, Generic[ClaimT]):
    """A claim with the version of its record."""

    claim: ClaimT
    version: int


def read_claim(store: CasReader, kind: type[ClaimT], path: str = CLAIM) -> VersionedClaim[ClaimT] | None:
    """Return the claim; None if no migration holds one.

    Raises:
        StoreConflict: the record is not a claim.
    """
    node = store.get(path)
    if node is None:
        return None
    return VersionedClaim(parse_claim(node.value, kind, path, store.url), node.version)


def parse_claim(value: bytes, kind: type[ClaimT], path: str, url: StoreUrl) -> ClaimT:
    """Return the claim in a record.

    Raises:
        StoreConflict: the record is not a claim.
    """
    try:
        return kind.model_validate_json(value)
    except ValidationError as error:
        message = f"{path} in {url} holds no claim ({faults(error)}); remove it, or move it away"
        raise StoreConflict(message, server=str(url), path=path.encode()) from error


def held_by(claim: Claim, url: StoreUrl, path: str = CLAIM) -> str:
    """Return who holds a claim, and what to do about it."""
    return (
        f"{url} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); let that one end, or, if its "
        f"workflow is gone for good, delete {path} there"
    )


def require_newest(claim: Claim | None, me: Attempt, what: str) -> None:
    """Require that an attempt may write: its run holds the claim, and no newer attempt or run has taken it.

    Args:
        claim: current claim; None if there is none.
        me: attempt that is about to write.
        what: name of what is claimed, for the message.

    Raises:
        ClaimHeld: another migration holds it.
        Superseded: this run has ended, or a newer attempt or run has started.
    """
    if claim is None:
        # A missing claim does not allow writes: a run that has ended removes its claim.
        # mutant: shared/fence-without-claim
        raise Superseded(f"this run does not hold {what} any more; a late attempt stops ({me})")
    if claim.workflow_id != me.workflow_id:  # mutant: shared/fence-lets-other-migrations-pass
        message = f"{what} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); a late attempt stops"
        raise ClaimHeld(message, workflow_id=claim.workflow_id, run_id=claim.run_id, server=what)
    # mutant: shared/fence-lets-other-runs-pass, shared/fence-lets-late-attempts-pass
    if not claim.is_of(me) or claim.is_newer_than(me):
        raise Superseded(f"{me} was superseded by {claim.holder} on {what}; a late attempt stops")


class ClaimKeeper(Generic[ClaimT]):
    """One claim, used by one attempt.

    Args:
        store: store with the claim.
        kind: model of its record.
        me: the attempt.
        path: path of the record.
        ended: first runs of other migrations that have ended, according to Temporal; their claims may be taken over.
    """

    def __init__(
        self, store: CasStore, kind: type[ClaimT], me: Attempt, *, path: str = CLAIM, ended: Container[str] = ()
    ) -> None:
        self._store = store
        self._kind = kind
        self.me = me
        self._path = path
        self._ended = ended

    def read(self) -> VersionedClaim[ClaimT] | None:
        """Return the claim of any migration."""
        return read_claim(self._store, self._kind, self._path)

    def take(self, **fields: Any) -> ClaimT:
        """Claim for this attempt, the first of a run; an earlier run of the same migration may hold the claim.

        Every earlier attempt stops.

        Args:
            fields: values for a new claim, or one of an earlier run; otherwise the fields stay as they are.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run has started.
        """
        return retry(lambda: self._take(fields), self._path)

    def renew(self, **fields: Any) -> ClaimT:
        """Move this run's claim to this attempt; every earlier attempt stops.

        Args:
            fields: values to set.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run has ended, or a newer attempt or run has started.
        """
        return retry(lambda: self._renew(fields), self._path)

    def require(self) -> ClaimT:
        """Require that this attempt may write, and return the claim; see `require_newest`."""
        return self._required().claim

    def guard(self) -> Check:
        """Return the check of the claim as a part of a transaction."""
        # The version and not the content: any change of the claim makes the transaction fail.
        return Check(self._path, self._required().version)  # mutant: shared/guard-of-any-version

    def renewal(self, **fields: Any) -> Set:
        """Return `renew` as a part of a transaction."""
        old, version = self._required()
        return Set(self._path, self.successor(old).model_copy(update=fields).encode(), version)

    def change(self, **fields: Any) -> ClaimT | None:
        """Change fields, whichever attempt of this run holds the claim; return None if this run does not hold it.

        Raises:
            ClaimHeld: another migration holds it.
        """
        return retry(lambda: self._change(fields), self._path)

    def release(self) -> None:
        """Remove the claim, and parents that become empty; do nothing if there is no claim.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run holds it.
        """
        retry(self._release, self._path)

    # Parts of transactions that change more than the claim ----------------------------------------------------------

    def admit(self, claim: ClaimT | None) -> None:
        """Require that `take` may replace this claim.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run has started.
        """
        if claim is None or claim.run_id in self._ended:
            return
        if claim.workflow_id != self.me.workflow_id:  # mutant: shared/take-from-another-migration
            message = held_by(claim, self._store.url, self._path)
            server = str(self._store.url)
            raise ClaimHeld(message, workflow_id=claim.workflow_id, run_id=claim.run_id, server=server)
        if claim.is_newer_than(self.me):  # mutant: shared/take-by-a-late-attempt
            raise Superseded(f"{self.me} was superseded by {claim.holder} on {self._store.url}; a late attempt stops")

    def successor(self, claim: ClaimT | None, **fields: Any) -> ClaimT:
        """Return the claim after this attempt has taken it; see `take`."""
        me = self.me
        if claim is None:
            return self._kind.model_validate({**fields, **me._asdict()})
        # Attempts of one run share the claim's fields, such as the version of the flag; a new run starts with its own.
        changed = {} if claim.run_id == me.run_id else fields  # mutant: shared/a-new-run-keeps-what-the-old-one-knew
        return claim.model_copy(update={**changed, **me._asdict()})

    # Inside ---------------------------------------------------------------------------------------------------------

    def _take(self, fields: dict[str, Any]) -> ClaimT:
        held = self.read()
        old = held.claim if held else None
        self.admit(old)
        new = self.successor(old, **fields)
        if held is None:
            self._store.create(self._path, new.encode())
        elif new != old:
            self._store.set(self._path, new.encode(), held.version)  # mutant: shared/take-sets-any-version
        return new

    def _renew(self, fields: dict[str, Any]) -> ClaimT:
        old, version = self._required()  # mutant: shared/renew-without-a-claim
        new = self.successor(old).model_copy(update=fields)
        if new != old:
            self._store.set(self._path, new.encode(), version)  # mutant: shared/renew-sets-any-version
        return new

    def _change(self, fields: dict[str, Any]) -> ClaimT | None:
        held = self.read()
        if held is None:
            return None
        if held.claim.workflow_id != self.me.workflow_id:
            self.admit(held.claim)
        # An update may arrive after its run has ended, when a later run holds the claim.
        if not held.claim.is_of(self.me):  # mutant: shared/pace-of-another-run
            return None
        new = held.claim.model_copy(update=fields)
        if new != held.claim:
            self._store.set(self._path, new.encode(), held.version)  # mutant: shared/change-sets-any-version
        return new

    def _required(self) -> VersionedClaim[ClaimT]:
        held = self.read()
        require_newest(held.claim if held else None, self.me, str(self._store.url))
        assert held is not None
        return held

    def _release(self) -> None:
        held = self.read()
        if held is not None:
            self.admit(held.claim)  # mutant: shared/release-by-a-late-attempt
            self._store.delete(self._path, held.version)  # mutant: shared/release-of-any-version
        self.forget_empty_parents()

    def forget_empty_parents(self) -> None:
        """Remove parents of the claim without value and children."""
        parent = self._path.rpartition("/")[0]
        while parent and (node := self._store.get(parent)) and not node.value and not self._store.children(parent):
            try:
                self._store.delete(parent, node.version)
            except VersionConflict:
                return  # another client uses it again
            parent = parent.rpartition("/")[0]
