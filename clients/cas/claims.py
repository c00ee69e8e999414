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


class Held(NamedTuple, Generic[ClaimT]):
    """A claim as it stands, with the version of its record."""

    claim: ClaimT
    version: int


def read_claim(store: CasReader, kind: type[ClaimT], path: str = CLAIM) -> Held[ClaimT] | None:
    """The claim; None if nobody holds one.

    Raises:
        StoreConflict: the record is no claim.
    """
    node = store.get(path)
    if node is None:
        return None
    return Held(parse_claim(node.value, kind, path, store.url), node.version)


def parse_claim(value: bytes, kind: type[ClaimT], path: str, url: StoreUrl) -> ClaimT:
    """The claim in a record.

    Raises:
        StoreConflict: the record is no claim.
    """
    try:
        return kind.model_validate_json(value)
    except ValidationError as error:
        message = f"{path} in {url} holds no claim ({faults(error)}); remove it, or move it away"
        raise StoreConflict(message, server=str(url), path=path.encode()) from error


def held_by(claim: Claim, url: StoreUrl, path: str = CLAIM) -> str:
    """Say who holds a claim, and what can be done about it."""
    return (
        f"{url} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); let that one end, or, if its "
        f"workflow is gone for good, delete {path} there"
    )


def require_newest(claim: Claim | None, me: Attempt, what: str) -> None:
    """The fence: an attempt may write while its run holds the claim, and nobody newer has taken it.

    Args:
        claim: as it stands; None if nobody holds one.
        me: who wants to write.
        what: the claim is in, for the message.

    Raises:
        ClaimHeld: another migration holds it.
        Superseded: this run has ended, or a newer attempt or run has begun.
    """
    if claim is None:
        # No claim is no permission: a run that has ended removes it.
        # mutant: shared/fence-without-claim
        raise Superseded(f"this run does not hold {what} any more; a late attempt stops ({me})")
    if claim.workflow_id != me.workflow_id:  # mutant: shared/fence-lets-other-migrations-pass
        message = f"{what} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); a late attempt stops"
        raise ClaimHeld(message, workflow_id=claim.workflow_id, run_id=claim.run_id, server=what)
    # mutant: shared/fence-lets-other-runs-pass, shared/fence-lets-late-attempts-pass
    if not claim.is_of(me) or claim.is_newer_than(me):
        raise Superseded(f"{me} was superseded by {claim.holder} on {what}; a late attempt stops")


class ClaimKeeper(Generic[ClaimT]):
    """One claim on behalf of one attempt.

    Args:
        store: where it is.
        kind: model of its record.
        me: the attempt.
        path: of the record.
        ended: first runs of other migrations that have ended, as Temporal says, whose claims this one may take over.
    """

    def __init__(
        self, store: CasStore, kind: type[ClaimT], me: Attempt, *, path: str = CLAIM, ended: Container[str] = ()
    ) -> None:
        self._store = store
        self._kind = kind
        self.me = me
        self._path = path
        self._ended = ended

    def read(self) -> Held[ClaimT] | None:
        """The claim, whoever holds it."""
        return read_claim(self._store, self._kind, self._path)

    def take(self, **fields: Any) -> ClaimT:
        """Claim for this attempt: the first of a run, which may take over from an earlier run of the same migration.

        Every earlier attempt stops.

        Args:
            fields: set where the claim is new or was an earlier run's; others stay as they are.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run has begun.
        """
        return retry(lambda: self._take(fields), self._path)

    def renew(self, **fields: Any) -> ClaimT:
        """Move the claim, which this run must hold, to this attempt; every earlier one stops.

        Args:
            fields: set in any case.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: this run has ended, or a newer attempt or run has begun.
        """
        return retry(lambda: self._renew(fields), self._path)

    def require(self) -> ClaimT:
        """The fence; see `require_newest`."""
        return self._required().claim

    def guard(self) -> Check:
        """The fence as a part of a transaction."""
        # The version and not the content: whatever changes the claim makes the transaction fail.
        return Check(self._path, self._required().version)  # mutant: shared/guard-of-any-version

    def renewal(self, **fields: Any) -> Set:
        """`renew` as a part of a transaction."""
        old, version = self._required()
        return Set(self._path, self.successor(old).model_copy(update=fields).encode(), version)

    def change(self, **fields: Any) -> ClaimT | None:
        """Change fields, whichever attempt of this run holds the claim; None where this run holds none.

        Raises:
            ClaimHeld: another migration holds it.
        """
        return retry(lambda: self._change(fields), self._path)

    def release(self) -> None:
        """Remove the claim, and the parents that this leaves empty; harmless where there is none.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run holds it.
        """
        retry(self._release, self._path)

    # Parts of transactions that change more than the claim ----------------------------------------------------------

    def admit(self, claim: ClaimT | None) -> None:
        """Whether `take` may have a claim that stands so.

        Raises:
            ClaimHeld: another migration holds it.
            Superseded: a newer attempt or run has begun.
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
        """The claim once this attempt has taken it; see `take`."""
        me = self.me
        if claim is None:
            return self._kind.model_validate({**fields, **me._asdict()})
        # Attempts of one run share what the claim remembers, such as the version of the flag; a new run begins again.
        kept = {} if claim.run_id == me.run_id else fields  # mutant: shared/a-new-run-keeps-what-the-old-one-knew
        return claim.model_copy(update={**kept, **me._asdict()})

    # Inside ---------------------------------------------------------------------------------------------------------

    def _take(self, fields: dict[str, Any]) -> ClaimT:
        found = self.read()
        old = found.claim if found else None
        self.admit(old)
        new = self.successor(old, **fields)
        if found is None:
            self._store.create(self._path, new.encode())
        elif new != old:
            self._store.set(self._path, new.encode(), found.version)  # mutant: shared/take-sets-any-version
        return new

    def _renew(self, fields: dict[str, Any]) -> ClaimT:
        old, version = self._required()  # mutant: shared/renew-without-a-claim
        new = self.successor(old).model_copy(update=fields)
        if new != old:
            self._store.set(self._path, new.encode(), version)  # mutant: shared/renew-sets-any-version
        return new

    def _change(self, fields: dict[str, Any]) -> ClaimT | None:
        found = self.read()
        if found is None:
            return None
        if found.claim.workflow_id != self.me.workflow_id:
            self.admit(found.claim)
        # An update may come when its run has ended and a later one holds the claim.
        if not found.claim.is_of(self.me):  # mutant: shared/pace-of-another-run
            return None
        new = found.claim.model_copy(update=fields)
        if new != found.claim:
            self._store.set(self._path, new.encode(), found.version)  # mutant: shared/change-sets-any-version
        return new

    def _required(self) -> Held[ClaimT]:
        found = self.read()
        require_newest(found.claim if found else None, self.me, str(self._store.url))
        assert found is not None
        return found

    def _release(self) -> None:
        found = self.read()
        if found is not None:
            self.admit(found.claim)  # mutant: shared/release-by-a-late-attempt
            self._store.delete(self._path, found.version)  # mutant: shared/release-of-any-version
        self.forget_empty_parents()

    def forget_empty_parents(self) -> None:
        """Remove parents of the claim that hold nothing: no value and no children."""
        parent = self._path.rpartition("/")[0]
        while parent and (node := self._store.get(parent)) and not node.value and not self._store.children(parent):
            try:
                self._store.delete(parent, node.version)
            except VersionConflict:
                return  # somebody uses it again
            parent = parent.rpartition("/")[0]
