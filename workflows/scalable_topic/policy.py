"""What the operator may do in each phase of the migrations to scalable topics, and what a rollback costs there."""

from __future__ import annotations

from models.lifecycle.policy import CLEANING_UP, CLEANUP_GATE, ROLLING_BACK, TOO_SHORT, WINDOW_WAITS, PhasePolicy
from models.lifecycle.status import Undo
from models.scalable_topic.phases import NamespacePhase, OperationPhase, Phase

NO_WAY_BACK = "the topic is scalable, and nothing makes it regular again; its messages can be copied to a regular topic"
_NONE_GO_BACK = "what is scalable stays so; messages of a scalable topic can be copied to a regular one"
_UNTOUCHED = "the topic stays as it is; once it is scalable there is no way back"
_DONE_STAYS = "no further topic begins; what was done for single topics stays, and their own policies are put back"
_POLICIES_BACK = "the policies of the namespace are put back"

_CHECK = PhasePolicy(undo=Undo.FREE, undo_cost="nothing was changed", no_pause=TOO_SHORT)
_ROLLBACK = PhasePolicy(undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK)


def _behind(undo_cost: str, **more: str) -> PhasePolicy:
    """Of a phase behind the point of no return."""
    return PhasePolicy(undo=Undo.NONE, undo_cost=undo_cost, no_rollback=undo_cost, **more)


def _window(undo_cost: str) -> PhasePolicy:
    return _behind(
        undo_cost, no_pause=WINDOW_WAITS, no_cleanup="", gate="the window ends, and regular topics stay as they are"
    )


WAITING_AGAIN = PhasePolicy(
    undo=Undo.FREE,
    undo_cost=_POLICIES_BACK,
    no_pause="a pause would hold the policies of the namespace for longer; `rollback` ends the wait",
)
"""Of FLIP while it waits for clients that have come since, and nothing has changed."""

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: _CHECK,
    Phase.CLIENTS: PhasePolicy(undo=Undo.FREE, undo_cost=_UNTOUCHED),
    Phase.GUARD: PhasePolicy(undo=Undo.FREE, undo_cost=_POLICIES_BACK, no_pause=TOO_SHORT),
    Phase.FLIP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=NO_WAY_BACK,
        no_rollback="the topic is becoming scalable; a half of that would lose messages",
        no_pause=TOO_SHORT,
    ),
    Phase.DRAIN: _behind(
        NO_WAY_BACK,
        no_pause="a pause would hold the policies of the namespace for longer; `proceed` ends the wait",
        gate="the wait ends; old messages stay where they are, and can be consumed later",
    ),
    Phase.VERIFY: _behind(NO_WAY_BACK, no_pause=TOO_SHORT),
    Phase.COMPLETE: _behind(NO_WAY_BACK, no_pause=TOO_SHORT),
    Phase.GRACE: _window(NO_WAY_BACK),
    Phase.CLEANUP: _behind(NO_WAY_BACK, no_pause=CLEANING_UP, no_cleanup=CLEANING_UP, gate=CLEANUP_GATE),
    Phase.ROLLBACK: _ROLLBACK,
}

NAMESPACE_POLICIES: dict[NamespacePhase, PhasePolicy] = {
    NamespacePhase.PRECHECK: _CHECK,
    NamespacePhase.GUARD: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="the policies of all namespaces are put back; for topics that are scalable there is no way back",
    ),
    NamespacePhase.MIGRATE: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="no further topic begins, and those that wait stay regular; what is scalable stays so",
    ),
    NamespacePhase.COMPLETE: _behind(_NONE_GO_BACK, no_pause=TOO_SHORT),
    NamespacePhase.GRACE: _window(_NONE_GO_BACK),
    NamespacePhase.CLEANUP: _behind(_NONE_GO_BACK, no_pause=CLEANING_UP, no_cleanup=CLEANING_UP, gate=CLEANUP_GATE),
    NamespacePhase.ROLLBACK: _ROLLBACK,
}

OPERATION_POLICIES: dict[OperationPhase, PhasePolicy] = {
    OperationPhase.PRECHECK: _CHECK,
    OperationPhase.OPERATE: PhasePolicy(
        undo=Undo.FREE, undo_cost=_DONE_STAYS, no_pause="topics are dealt with at once; `rollback` ends it"
    ),
    OperationPhase.COMPLETE: _behind("all topics were dealt with", no_pause=TOO_SHORT),
    OperationPhase.ROLLBACK: _ROLLBACK,
}
