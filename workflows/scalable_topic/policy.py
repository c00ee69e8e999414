"""Allowed signals and rollback costs of each phase of the migrations to scalable topics."""

from __future__ import annotations

from typing import Any

from models.lifecycle.policy import CLEANING_UP, CLEANUP_GATE, ROLLING_BACK, TOO_SHORT, WINDOW_WAITS, PhasePolicy
from models.lifecycle.status import Undo
from models.scalable_topic.phases import NamespacePhase, OperationPhase, Phase

IRREVERSIBLE = "the topic is scalable and cannot become regular again; its messages can be copied to a regular topic"
_STAY_SCALABLE = "scalable topics stay scalable; their messages can be copied to regular topics"
_UNTOUCHED = "the topic stays regular; once it is scalable, it cannot be rolled back"
_DONE_STAYS = "no further topic starts; changes of finished topics stay, and their own policies are restored"
_POLICIES_RESTORED = "the policies of the namespace are restored"

_CHECK = PhasePolicy(undo=Undo.FREE, undo_cost="nothing was changed", no_pause=TOO_SHORT)
_ROLLBACK = PhasePolicy(undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK)


def _after_commit(undo_cost: str, **more: Any) -> PhasePolicy:
    """Return the policy of a phase after the point of no return."""
    return PhasePolicy(undo=Undo.NONE, undo_cost=undo_cost, no_rollback=undo_cost, **more)


def _window(undo_cost: str) -> PhasePolicy:
    return _after_commit(
        undo_cost, no_pause=WINDOW_WAITS, no_cleanup="", gate="the window ends and regular topics stay as they are"
    )


WAITING_AGAIN = PhasePolicy(
    undo=Undo.FREE,
    undo_cost=_POLICIES_RESTORED,
    no_pause="a pause would keep the policies of the namespace overridden for longer; `rollback` ends the wait",
)
"""Policy of FLIP while it waits for new clients; nothing has changed yet."""

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: _CHECK,
    Phase.CLIENTS: PhasePolicy(undo=Undo.FREE, undo_cost=_UNTOUCHED),
    Phase.GUARD: PhasePolicy(undo=Undo.FREE, undo_cost=_POLICIES_RESTORED, no_pause=TOO_SHORT),
    Phase.FLIP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=IRREVERSIBLE,
        no_rollback="the topic is becoming scalable; stopping halfway would lose messages",
        no_pause=TOO_SHORT,
    ),
    Phase.DRAIN: _after_commit(
        IRREVERSIBLE,
        no_pause="a pause would keep the policies of the namespace overridden for longer; `proceed` ends the wait",
        gate="the wait ends; old messages stay and can be consumed later",
    ),
    Phase.VERIFY: _after_commit(IRREVERSIBLE, no_pause=TOO_SHORT),
    Phase.COMPLETE: _after_commit(IRREVERSIBLE, no_pause=TOO_SHORT),
    Phase.GRACE: _window(IRREVERSIBLE),
    Phase.CLEANUP: _after_commit(IRREVERSIBLE, no_pause=CLEANING_UP, no_cleanup=CLEANING_UP, gate=CLEANUP_GATE),
    Phase.ROLLBACK: _ROLLBACK,
}

NAMESPACE_POLICIES: dict[NamespacePhase, PhasePolicy] = {
    NamespacePhase.PRECHECK: _CHECK,
    NamespacePhase.GUARD: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="the policies of all namespaces are restored; scalable topics cannot be rolled back",
    ),
    NamespacePhase.MIGRATE: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="no further topic starts, waiting topics stay regular, scalable topics stay scalable",
    ),
    NamespacePhase.COMPLETE: _after_commit(_STAY_SCALABLE, no_pause=TOO_SHORT),
    NamespacePhase.GRACE: _window(_STAY_SCALABLE),
    NamespacePhase.CLEANUP: _after_commit(
        _STAY_SCALABLE, no_pause=CLEANING_UP, no_cleanup=CLEANING_UP, gate=CLEANUP_GATE
    ),
    NamespacePhase.ROLLBACK: _ROLLBACK,
}

OPERATION_POLICIES: dict[OperationPhase, PhasePolicy] = {
    OperationPhase.PRECHECK: _CHECK,
    OperationPhase.OPERATE: PhasePolicy(
        undo=Undo.FREE, undo_cost=_DONE_STAYS, no_pause="topics are changed concurrently; `rollback` ends the operation"
    ),
    OperationPhase.COMPLETE: _after_commit("all topics were processed", no_pause=TOO_SHORT),
    OperationPhase.ROLLBACK: _ROLLBACK,
}
