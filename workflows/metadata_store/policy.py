"""Policies of the phases of the metadata store migration: legal verbs, and the cost of a rollback."""

from __future__ import annotations

from models.lifecycle.policy import (
    CLEANING_UP,
    CLEANUP_GATE,
    COPY_STOPS,
    ROLLING_BACK,
    TOO_SHORT,
    WINDOW_WAITS,
    PhasePolicy,
)
from models.lifecycle.status import Undo
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase

AFTER_COMMIT = (
    "brokers write to the target since COMPLETED. To move back, migrate in offline mode: stop all brokers and "
    'bookies, start MetadataStoreMigration with source and target swapped, "mode": "offline" and "replace_target": true'
)
_BLOCKED = "metadata writes are blocked, and a pause would prolong that; `rollback` unblocks them"

_DURING_TRAFFIC = PhasePolicy(
    undo=Undo.FREE,
    undo_cost="brokers are not affected; a rollback removes the copy from the target",
    pause_effect=COPY_STOPS,
)

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: PhasePolicy(
        undo=Undo.FREE, undo_cost="nothing was changed; a rollback ends the migration", no_pause=TOO_SHORT
    ),
    Phase.PRE_COPY: _DURING_TRAFFIC,
    Phase.CATCH_UP: _DURING_TRAFFIC.model_copy(
        update={"pause_effect": "holds before the cut-over, with the copy kept up to date; `resume` continues"}
    ),
    Phase.PREPARATION: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="a rollback sets the flag to FAILED: brokers write to the source at once, and the copy is removed",
        no_pause=_BLOCKED,
    ),
    Phase.COMPLETED: PhasePolicy(
        undo=Undo.COPY_BACK, undo_cost=AFTER_COMMIT, no_rollback="the commit is running", no_pause=TOO_SHORT
    ),
    Phase.VALIDATION: PhasePolicy(
        undo=Undo.COPY_BACK,
        undo_cost=AFTER_COMMIT,
        no_rollback=AFTER_COMMIT,
        no_pause=WINDOW_WAITS,
        no_cleanup="",
        gate="the window ends, and the source stays as it is",
    ),
    Phase.CLEANUP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost="records removed from the source are gone; the target holds them all",
        no_rollback=AFTER_COMMIT,
        no_pause=TOO_SHORT,
        no_cleanup=CLEANING_UP,
        gate=CLEANUP_GATE,
    ),
    Phase.FAILED: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=ROLLING_BACK,
        no_rollback=ROLLING_BACK,
        no_pause=ROLLING_BACK,
    ),
}
POLICIES[Phase.COPYING] = POLICIES[Phase.VERIFY] = POLICIES[Phase.PREPARATION]

_REPLACED = "; what the target held before is gone for good"

OFFLINE_COPY = PhasePolicy(
    undo=Undo.FREE, undo_cost="the source is only read; a rollback removes the copy from the target", no_pause=TOO_SHORT
)


def with_replaced_target(policy: PhasePolicy) -> PhasePolicy:
    """Return the policy of a phase in which a rollback cannot bring back what `replace_target` has removed."""
    undo = Undo.NONE if policy.undo is Undo.FREE else policy.undo
    return policy.model_copy(update={"undo": undo, "undo_cost": policy.undo_cost + _REPLACED})


def policies_of(input: MetadataStoreInput) -> dict[Phase, PhasePolicy]:
    """Return what the operator may do in each phase of this migration."""
    if not input.replace_target:
        return POLICIES
    begun = (Phase.PRE_COPY, Phase.CATCH_UP, Phase.PREPARATION, Phase.COPYING, Phase.VERIFY)
    return POLICIES | {phase: with_replaced_target(POLICIES[phase]) for phase in begun}


def offline_copy(input: MetadataStoreInput) -> PhasePolicy:
    """Return the same for the copy of an offline migration."""
    return with_replaced_target(OFFLINE_COPY) if input.replace_target else OFFLINE_COPY
