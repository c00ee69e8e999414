"""The migration flag in the source, and our claim next to it; both change in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clients.cas.claims import ClaimKeeper, read_claim, require_newest
from clients.cas.store import CasReader, CasStore, Create, Delete, Set, retry
from clients.errors import StoreConflict, Superseded, VersionConflict
from clients.pulsar.records.migration_flag import foreign_flag, read_flag
from models.lifecycle.claim import CLAIM, Attempt
from models.metadata_store.claims import SourceClaim
from models.migration_flag import BLOCKING_PHASES, FLAG, OPEN_PHASES, Flag, FlagPhase

# The order of PIP-454. FAILED may be followed by a new PREPARATION only, and COMPLETED by nothing.
_FROM = {
    FlagPhase.PREPARATION: OPEN_PHASES,
    FlagPhase.COPYING: (FlagPhase.PREPARATION,),
    FlagPhase.COMPLETED: (FlagPhase.COPYING,),
    FlagPhase.FAILED: BLOCKING_PHASES,
}

# Fields of the claim that a new run resets, because it has not set the flag yet.
_NEW_RUN = {
    "flag_version": -1,
    "blocked_since_ms": 0,
    "moved_ms": 0,
    "copied_zxid": 0,
    "target_mark": 0,
    "target_marks": dict[int, int](),
}


_NO_MARKS: Mapping[int, int] = {}


@dataclass(frozen=True)
class FlagState:
    """Flag and claim, as they are stored.

    Attributes:
        flag: that brokers read; NOT_STARTED without one.
        version: of the flag's znode; -1 without one.
        since_ms: when the flag got its phase, by the server's clock.
        claim: on the source, if one of our migrations holds it.
        claim_version: of the claim's znode; -1 without one.
    """

    flag: Flag
    version: int
    since_ms: int
    claim: SourceClaim | None
    claim_version: int

    @property
    def blocked_since(self) -> float:
        """Time at which writes were blocked: seconds since 1970, by the server's clock."""
        return (self.claim.blocked_since_ms if self.claim else self.since_ms) / 1000

    def owned_by(self, workflow_id: str) -> bool:
        """Return whether this migration set the flag last."""
        return (
            self.claim is not None
            and self.claim.workflow_id == workflow_id
            and self.version >= 0
            # By version and not by content: Pulsar's own command may have set the same phase since.
            and self.claim.flag_version == self.version  # mutant: metadata-store/ownership-by-phase
        )

    def blocked_by(self, workflow_id: str) -> bool:
        """Return whether this migration, in this run or an earlier one, blocks writes."""
        return self.owned_by(workflow_id) and self.flag.phase in _FROM[FlagPhase.FAILED]


def read_state(store: CasReader) -> FlagState:
    """Read claim and flag, in this order, so that the flag is at least as new as the claim."""
    held = read_claim(store, SourceClaim)
    stored = read_flag(store)
    claim = held.claim if held else None
    return FlagState(
        flag=stored.flag,
        version=stored.version,
        since_ms=claim.moved_ms if claim and claim.moved_ms and stored.version >= 0 else stored.modified_ms,
        claim=claim,
        claim_version=held.version if held else -1,
    )


class FlagKeeper:
    """Sets the flag for one attempt at a step.

    Each change is a transaction of flag and claim with the versions that were read. So one of two concurrent writers
    fails, reads again, and finds the other's claim. A repeated attempt finds its change done.

    Args:
        store: the source.
        me: the attempt.
    """

    def __init__(self, store: CasStore, me: Attempt) -> None:
        self._store = store
        self._me = me
        self._claim = ClaimKeeper(store, SourceClaim, me)

    def state(self) -> FlagState:
        """Return flag and claim, as they are stored."""
        return read_state(self._store)

    def take(self) -> FlagState:
        """Claim the source for this run; writes that an earlier run left blocked are unblocked.

        Raises:
            ClaimHeld: another migration holds the source.
            Superseded: a newer attempt or run has begun.
        """
        return retry(self._take, CLAIM)

    def renew(self, **fields: object) -> SourceClaim:
        """Move the claim, which this run must hold, to this attempt; every earlier attempt stops.

        Args:
            fields: values to set; the others stay as the earlier attempt left them.

        Raises:
            ClaimHeld: another migration holds the source.
            Superseded: this run has ended, or a newer attempt or run has begun.
        """
        return self._claim.renew(**fields)

    def blocked_seconds(self) -> float:
        """Move the claim to this attempt; return for how long this migration has blocked writes, 0 if it does not.

        Raises:
            StoreConflict: another attempt or run holds the source.
        """
        self.renew()
        state, node = self.state(), self._store.get(CLAIM)
        if state.claim is None or node is None or not state.blocked_by(self._me.workflow_id):
            return 0.0
        # The claim was written just now, and by the clock that also says when writes were blocked.
        return (node.modified_ms - (state.claim.blocked_since_ms or state.since_ms)) / 1000

    def mark(self) -> int:
        """Move the claim to this attempt; return its transaction id, a point in the source's order of changes.

        Raises:
            StoreConflict: another attempt or run holds the source.
        """
        return retry(self._mark, CLAIM)

    def advance(
        self,
        to: FlagPhase,
        target: str,
        *,
        copied_zxid: int = 0,
        target_mark: int = 0,
        target_marks: Mapping[int, int] = _NO_MARKS,
    ) -> FlagState:
        """Set the flag, unless this run has set it before, and move the claim to this attempt.

        The claim stores `copied_zxid`, `target_mark` and `target_marks`; see `SourceClaim`.

        Raises:
            StoreConflict: this run did not set the flag last, or another attempt or run holds the source.
        """
        marks = {"copied_zxid": copied_zxid, "target_mark": target_mark, "target_marks": {**target_marks}}
        return retry(lambda: self._advance(to, target, marks), FLAG)

    def rebroadcast(self) -> bool:
        """Set the flag to its own value, for services that were disconnected before; return whether it was set.

        Services use a persistent watch, which does not report missed events: they would block writes indefinitely.
        Does nothing if this run did not set the flag, unless the flag is FAILED and the source has no claim.
        """
        return retry(self._rebroadcast, FLAG)

    def is_at_phase(self, phase: FlagPhase) -> bool:
        """Return whether the flag has this phase, and this migration set it last."""
        state = self.state()
        return state.owned_by(self._me.workflow_id) and state.flag.phase is phase

    def require(self, *phases: FlagPhase) -> None:
        """Check the fence: this attempt is the newest that holds the source, and the flag has one of these phases.

        Raises:
            StoreConflict: this attempt is late, and must not write.
        """
        state = self.state()
        require_newest(state.claim, self._me, str(self._store.url))  # mutant: metadata-store/fence-without-claim
        if state.flag.phase not in phases:  # mutant: metadata-store/fence-without-phase
            raise Superseded(f"the migration flag is {state.flag.phase}; this step came too late to write")

    def unblock(self) -> FlagState:
        """Set the flag to FAILED if this migration, in this run or an earlier one, blocks writes.

        The claim moves in any case, so that an attempt that is about to block writes fails. Does nothing if a later run
        holds the claim.

        Raises:
            Superseded: a newer attempt has begun.
        """
        return retry(self._unblock, FLAG)

    def expire(self) -> FlagState:
        """Set the flag to FAILED if this run blocks writes, whichever of its attempts holds the claim.

        Called by the worker process that blocked writes, if Temporal cannot reach it any more. Every running attempt
        finds that its claim has moved, and stops.
        """
        return retry(self._expire, FLAG)

    def release(self) -> None:
        """Remove the claim, and with it the right to block writes; safe if this run does not hold it.

        Raises:
            Superseded: a newer attempt has begun.
        """
        retry(self._release, CLAIM)
        self._claim.forget_empty_parents()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _take(self) -> FlagState:
        state = self.state()
        self._claim.admit(state.claim)
        new_run = state.claim is not None and not state.claim.is_of(self._me)
        if new_run and state.blocked_by(self._me.workflow_id):
            failed = state.flag.model_copy(update={"phase": FlagPhase.FAILED})
            # In one transaction: a run that dies between two writes would leave writes blocked without an owner.
            # mutant: metadata-store/a-new-run-knows-the-old-commit
            self._set_both(state, failed, self._claim.successor(state.claim, **_NEW_RUN))
        else:
            self._claim.take(**_NEW_RUN)
        return self.state()

    def _mark(self) -> int:
        state = self.state()
        require_newest(state.claim, self._me, str(self._store.url))
        # mutant: metadata-store/mark-of-any-version
        self._store.set(CLAIM, self._claim.successor(state.claim).encode(), state.claim_version)
        # A set does not return its transaction id. The node has the id of our set only if it has the next version.
        node = self._store.get(CLAIM)
        if node is None or node.version != state.claim_version + 1:  # mutant: metadata-store/mark-of-another-attempt
            raise VersionConflict(f"{CLAIM} in {self._store.url} was set by another client at the same time")
        return node.txid

    def _advance(self, to: FlagPhase, target: str, marks: Mapping[str, object]) -> FlagState:
        state = self.state()
        require_newest(state.claim, self._me, str(self._store.url))  # mutant: metadata-store/a-late-step-advances
        assert state.claim is not None
        return self._move(state, state.claim.model_copy(update=marks), to, target)

    def _move(self, state: FlagState, claim: SourceClaim, to: FlagPhase, target: str) -> FlagState:
        mine = state.owned_by(self._me.workflow_id)
        # A repeated attempt finds its change done. Another set would give the flag a new time, from which the blocked
        # time is measured.
        if mine and state.flag.phase is to:  # mutant: metadata-store/a-repeated-move-moves-again
            self._claim.renew()
            return self.state()
        # FAILED may have been set by hand (break-glass), or by our own rollback: a late attempt must not undo that.
        if to is FlagPhase.PREPARATION and claim.flag_version >= 0:  # mutant: metadata-store/a-run-blocks-twice
            raise StoreConflict(
                f"this run blocked writes before, and the flag is {state.flag.phase} now; it does not block them "
                "again. Start the migration again"
            )
        # mutant: metadata-store/a-foreign-flag-is-moved, metadata-store/phases-in-any-order
        if state.flag.phase not in _FROM[to] or (not mine and state.flag.phase not in OPEN_PHASES):
            raise StoreConflict(foreign_flag(state.flag))
        blocked = state.since_ms if state.flag.phase is FlagPhase.PREPARATION else claim.blocked_since_ms
        moved = {"flag_version": state.version + 1, "blocked_since_ms": blocked, "moved_ms": 0}
        new = self._claim.successor(claim).model_copy(update=moved)
        self._set_both(state, Flag(phase=to, targetUrl=target), new)
        return self.state()

    def _rebroadcast(self) -> bool:
        state = self.state()
        claim = state.claim
        if claim is None and state.flag.phase is FlagPhase.FAILED:
            # Our rollback released the claim. The version check protects a run that starts now.
            self._store.set(FLAG, state.flag.encode(), state.version)  # mutant: metadata-store/flag-over-a-later-run
            return True
        if claim is None or not claim.is_of(self._me) or not state.owned_by(self._me.workflow_id):
            return False
        # Any attempt of the run may do it: only versions change. The set gives the flag a new time, so the claim keeps
        # the time of its phase.
        again = {"flag_version": state.version + 1, "moved_ms": state.since_ms}
        self._set_both(state, state.flag, claim.model_copy(update=again))
        return True

    def _expire(self) -> FlagState:
        state = self.state()
        claim = state.claim
        # mutant: metadata-store/expire-of-a-later-run
        if claim is None or not claim.is_of(self._me) or not state.blocked_by(self._me.workflow_id):
            return state
        self._set_both(
            state,
            state.flag.model_copy(update={"phase": FlagPhase.FAILED}),
            # mutant: metadata-store/expire-leaves-the-attempt
            claim.model_copy(update={"attempt": claim.attempt + 1, "flag_version": state.version + 1, "moved_ms": 0}),
        )
        return self.state()

    def _unblock(self) -> FlagState:
        state = self.state()
        claim = state.claim
        if claim is None or claim.workflow_id != self._me.workflow_id or self._is_of_newer_run(claim):
            return state
        self._claim.admit(claim)
        if state.blocked_by(self._me.workflow_id):
            return self._move(state, claim, FlagPhase.FAILED, state.flag.targetUrl or "")
        # An attempt that read the claim before and is about to block writes fails by its version.
        # mutant: metadata-store/unblock-leaves-the-claim
        self._store.set(CLAIM, self._claim.successor(claim).encode(), state.claim_version)
        return self.state()

    def _release(self) -> None:
        state = self.state()
        claim = state.claim
        if claim is None or claim.workflow_id != self._me.workflow_id or self._is_of_newer_run(claim):
            return
        self._claim.admit(claim)
        # Setting the flag also sets the claim: once this version is gone, no late change can follow.
        if state.blocked_by(self._me.workflow_id):  # mutant: metadata-store/release-leaves-writes-blocked
            state = self._move(state, claim, FlagPhase.FAILED, state.flag.targetUrl or "")
        self._store.transaction([Delete(CLAIM, state.claim_version)])  # mutant: metadata-store/release-of-any-version

    def _is_of_newer_run(self, claim: SourceClaim) -> bool:
        # The claim belongs to a later run, so this (reset) run has nothing to release.
        # mutant: metadata-store/unblock-takes-from-a-later-run
        return not claim.is_of(self._me) and claim.is_newer_than(self._me)

    def _set_both(self, state: FlagState, flag: Flag, claim: SourceClaim) -> None:
        # Between two writes the flag would have no owner, and the next start would see a foreign flag.
        value = flag.encode()
        # mutant: metadata-store/flag-of-any-version
        change = Create(FLAG, value) if state.version < 0 else Set(FLAG, value, state.version)
        # mutant: metadata-store/flag-with-a-claim-of-any-version, metadata-store/flag-without-the-claim
        self._store.transaction([change, Set(CLAIM, claim.encode(), state.claim_version)])
