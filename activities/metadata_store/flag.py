"""The migration flag in the source, and our claim beside it: always changed together, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from clients.errors import StoreConflict
from clients.zookeeper.coordination import Coordination, CoordinationReader, Create, Delete, Set
from models.metadata_store.flag import CLAIM, FLAG, Claim, Flag, FlagPhase

OPEN = (FlagPhase.NOT_STARTED, FlagPhase.FAILED)
"""The phases in which services write to the source."""

_FROM = {
    FlagPhase.PREPARATION: OPEN,
    FlagPhase.COPYING: (FlagPhase.PREPARATION,),
    FlagPhase.COMPLETED: (FlagPhase.COPYING,),
    FlagPhase.FAILED: (FlagPhase.PREPARATION, FlagPhase.COPYING),
}


@dataclass(frozen=True)
class FlagState:
    """Flag and claim as they stand.

    Attributes:
        flag: what brokers read; NOT_STARTED where there is none.
        version: version of the flag's znode; -1 where there is none.
        since_ms: when the flag was moved to its phase, by the server's clock.
        claim: who owns the flag, if one of our migrations does.
        claim_version: version of the claim's znode; -1 where there is none.
    """

    flag: Flag
    version: int
    since_ms: int
    claim: Claim | None
    claim_version: int

    def owned_by(self, workflow_id: str) -> bool:
        """Whether the flag stands as this migration set it last."""
        return (
            self.claim is not None
            and self.claim.workflow_id == workflow_id
            and self.version >= 0
            and self.claim.flag_version == self.version
        )


def read_flag(zookeeper: CoordinationReader) -> FlagState:
    """Read flag and claim."""
    node, own = zookeeper.get(FLAG), zookeeper.get(CLAIM)
    flag = Flag(phase=FlagPhase.NOT_STARTED)
    if node is not None and node[0]:
        flag = Flag.model_validate_json(node[0])
    claim = None if own is None else Claim.model_validate_json(own[0])
    return FlagState(
        flag=flag,
        version=-1 if node is None else node[1].version,
        since_ms=0 if node is None else (claim.moved_ms if claim and claim.moved_ms else node[1].mtime),
        claim=claim,
        claim_version=-1 if own is None else own[1].version,
    )


class FlagKeeper:
    """Moves the flag on behalf of one migration.

    Each move is a transaction of flag and claim with the versions that were read, so of two movers one loses, and a
    step that is repeated finds its move done.
    """

    def __init__(self, zookeeper: Coordination, workflow_id: str, run_id: str) -> None:
        self._zookeeper = zookeeper
        self._me = Claim(workflow_id=workflow_id, run_id=run_id)

    def claim(self) -> None:
        """Say in the source that this run is at work; writes that an earlier run left blocked are given back.

        Raises:
            StoreConflict: another migration of ours holds the source.
        """
        state = read_flag(self._zookeeper)
        if state.claim is None:
            self._zookeeper.create(CLAIM, _dump(self._me), parents=True)
        elif state.claim.workflow_id != self._me.workflow_id:
            raise StoreConflict(held_by(state.claim))
        elif state.claim.run_id != self._me.run_id:
            self.release()
            state = read_flag(self._zookeeper)
            self._zookeeper.set(CLAIM, _dump(self._me), state.claim_version)

    def mark(self) -> int:
        """Set our claim once more, and return the transaction id of that: a point in the source's own order of changes.

        Raises:
            StoreConflict: another run holds the source.
        """
        state = read_flag(self._zookeeper)
        if state.claim is None or state.claim.run_id != self._me.run_id:
            raise StoreConflict(_not_mine(state.claim))
        return self._zookeeper.set(CLAIM, _dump(state.claim), state.claim_version).mzxid

    def advance(self, to: FlagPhase, target: str, *, settled_zxid: int = 0) -> FlagState:
        """Move the flag; does nothing if this run moved it there before.

        `settled_zxid` is remembered: changes with a larger transaction id may not be in the target yet.

        Raises:
            StoreConflict: the flag is not where this run left it, or another one holds the source.
        """
        state = read_flag(self._zookeeper)
        if state.claim is None or state.claim.run_id != self._me.run_id:
            raise StoreConflict(_not_mine(state.claim))
        return self._move(state, state.claim.model_copy(update={"settled_zxid": settled_zxid}), to, target)

    def _move(self, state: FlagState, claim: Claim, to: FlagPhase, target: str) -> FlagState:
        mine = state.owned_by(self._me.workflow_id)
        if mine and state.flag.phase is to:
            return state
        if to is FlagPhase.PREPARATION and claim.flag_version >= 0:
            raise StoreConflict(
                f"this run blocked writes before, and the flag is {state.flag.phase} now; it does not block them "
                "again. Start the migration anew"
            )
        if state.flag.phase not in _FROM[to] or (not mine and state.flag.phase not in OPEN):
            raise StoreConflict(foreign_flag(state.flag))
        blocked = state.since_ms if state.flag.phase is FlagPhase.PREPARATION else claim.blocked_since_ms
        new = claim.model_copy(update={"flag_version": state.version + 1, "blocked_since_ms": blocked, "moved_ms": 0})
        value = _dump_flag(Flag(phase=to, targetUrl=target))
        flag = Create(FLAG, value) if state.version < 0 else Set(FLAG, value, state.version)
        self._zookeeper.commit([flag, Set(CLAIM, _dump(new), state.claim_version)])
        return read_flag(self._zookeeper)

    def repeat(self) -> None:
        """Set the flag to what it is, for services that were cut off from the source when it was moved.

        They follow a persistent watch, and a persistent watch is not told what it missed (seen with 5.0.0-M1): they
        would block writes for ever. Does nothing where this run did not set the flag.
        """
        state = read_flag(self._zookeeper)
        claim = state.claim
        if claim is None or claim.run_id != self._me.run_id or not state.owned_by(self._me.workflow_id):
            return
        new = claim.model_copy(update={"flag_version": state.version + 1, "moved_ms": state.since_ms})
        value = _dump_flag(state.flag)
        self._zookeeper.commit([Set(FLAG, value, state.version), Set(CLAIM, _dump(new), state.claim_version)])

    def state(self) -> FlagState:
        """Flag and claim as they stand."""
        return read_flag(self._zookeeper)

    def stands_at(self, phase: FlagPhase) -> bool:
        """Whether this migration moved the flag to this phase, and nobody moved it since."""
        state = read_flag(self._zookeeper)
        return state.owned_by(self._me.workflow_id) and state.flag.phase is phase

    def require(self, *phases: FlagPhase) -> None:
        """The fence: make sure that the flag stands in one of these phases, and that this run holds the source.

        Raises:
            StoreConflict: it does not: this attempt is a late one, and must not write.
        """
        state = read_flag(self._zookeeper)
        if state.claim is None or state.claim.run_id != self._me.run_id:
            raise StoreConflict(_not_mine(state.claim))
        if state.flag.phase not in phases:
            raise StoreConflict(f"the migration flag is {state.flag.phase}; this step came too late to write")

    def release(self) -> FlagState:
        """Set the flag to FAILED if this migration, in this run or an earlier one, blocks writes."""
        state = read_flag(self._zookeeper)
        blocked = state.owned_by(self._me.workflow_id) and state.flag.phase in _FROM[FlagPhase.FAILED]
        if state.claim is not None and blocked:
            return self._move(state, state.claim, FlagPhase.FAILED, state.flag.targetUrl or "")
        return state

    def yields_to_another_run(self) -> bool:
        """Whether another run of ours holds the source, so that this one has nothing to tidy up any more."""
        claim = read_flag(self._zookeeper).claim
        return claim is not None and claim.run_id != self._me.run_id

    def drop(self) -> None:
        """Remove the claim; harmless where this run holds none."""
        state = read_flag(self._zookeeper)
        if state.claim is not None and state.claim.run_id == self._me.run_id:
            self._zookeeper.commit([Delete(CLAIM, state.claim_version)])


def held_by(claim: Claim) -> str:
    """Say who holds the source."""
    return (
        f"the source is held by the migration {claim.workflow_id!r} (run {claim.run_id}); let that one end, or, if its "
        f"workflow is gone for good, delete the znode {CLAIM}"
    )


def _not_mine(claim: Claim | None) -> str:
    return held_by(claim) if claim else "this run does not hold the source any more"


def foreign_flag(flag: Flag) -> str:
    """Say that somebody else moved the flag."""
    return (
        f"the migration flag {FLAG} is {flag.phase} (target {flag.targetUrl}), and this migration did not set it: "
        "somebody else migrates this cluster, perhaps with Pulsar's own command"
    )


def _dump_flag(flag: Flag) -> bytes:
    return flag.model_dump_json(exclude_none=True).encode()


def _dump(claim: Claim) -> bytes:
    return claim.model_dump_json().encode()
