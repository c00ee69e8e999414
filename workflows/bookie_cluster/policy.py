"""Policies of the phases of the bookie cluster migration: legal verbs, and the cost of a rollback."""

from __future__ import annotations

from models.bookie_cluster.input import Routing
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import SwitchCensus
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

WINDOW_OVER = (
    "the window is over: brokers use the target permanently. To move back, start another "
    "BookieClusterMigration with source and target swapped"
)

_COMMON: dict[Phase, PhasePolicy] = {
    Phase.REGISTER: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="nothing is copied yet",
        # Interrupted, it would not know of a commit before it, and call brokers that stay on the target rolled back.
        no_rollback=(
            "within a minute it is known whether an earlier run of this switch had committed, and what a rollback has "
            "to undo; give it then"
        ),
        no_pause=TOO_SHORT,
    ),
    Phase.PRECHECK: PhasePolicy(
        undo=Undo.FREE, undo_cost="nothing is copied yet; a rollback ends the switch", no_pause=TOO_SHORT
    ),
    Phase.BUILD: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="brokers are not affected; a rollback removes the copies from the target",
        pause_effect=COPY_STOPS,
    ),
    Phase.CLEANUP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost="ledgers deleted from the source are gone; the target holds them",
        no_rollback=WINDOW_OVER,
        no_pause=TOO_SHORT,
        no_cleanup=CLEANING_UP,
        gate=CLEANUP_GATE,
    ),
    Phase.ROLLED_BACK: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=ROLLING_BACK,
        no_rollback=ROLLING_BACK,
        no_pause=ROLLING_BACK,
        no_cleanup="there is nothing to clean up: the switch is rolled back",
    ),
}

_RESTART: dict[Phase, PhasePolicy] = {
    **_COMMON,
    Phase.BUILD: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="brokers are not affected; the copies stay in the target for the next start",
        pause_effect=COPY_STOPS,
    ),
    Phase.SWITCH: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="a rollback starts brokers on the source again; nothing is copied back",
        no_pause="brokers are stopped, and a pause would prolong that; `rollback` starts them on the source again",
    ),
    Phase.PROMOTE: PhasePolicy(
        undo=Undo.COPY_BACK,
        undo_cost=("a rollback stops brokers again, copies back what the target gained, and starts them on the source"),
        no_pause="brokers are being started; what follows is a wait already",
    ),
}
_ATTRIBUTION: dict[Phase, PhasePolicy] = {
    **_COMMON,
    Phase.SWITCH: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="a rollback lets brokers write to the source again at once, and removes the copies from the target",
        no_pause=TOO_SHORT,
    ),
    Phase.PROMOTE: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost=(
            "a rollback changes the attributions back and copies nothing; the target's copies are deleted after the "
            "deletion delay"
        ),
        no_pause="what follows is a wait already",
    ),
}
for _policies in (_RESTART, _ATTRIBUTION):
    _policies[Phase.ROLLBACK_WINDOW] = _policies[Phase.PROMOTE].model_copy(
        update={
            "no_pause": WINDOW_WAITS,
            "no_cleanup": "",
            "gate": "the window ends, and the source's ledgers stay as they are",
            "after_gate": Undo.NONE,
        }
    )

AFTER_CUTOVER = {Routing.RESTART: Undo.COPY_BACK, Routing.ATTRIBUTION: Undo.METADATA}
"""How the cut-over of each routing is undone."""

POLICIES: dict[Routing, dict[Phase, PhasePolicy]] = {Routing.RESTART: _RESTART, Routing.ATTRIBUTION: _ATTRIBUTION}

DELETION_DELAY = PhasePolicy(
    undo=Undo.NONE,
    undo_cost="the switch is rolled back; the target's copies wait for their deletion",
    no_rollback="the switch is rolled back already",
    no_pause=WINDOW_WAITS,
    no_cleanup="",
    gate="the window ends, and the copies in the target are kept",
    cleanup_effect="the window ends, and the copies in the target are deleted",
)
"""After a rollback with routing `attribution`, while the target's copies are kept."""


def with_target_only(policy: PhasePolicy, census: SwitchCensus) -> PhasePolicy:
    """Return the window's policy, with what a rollback would copy back as the census found it."""
    if policy.undo is not Undo.COPY_BACK:
        return policy
    size = f"{census.target_only:,} ledgers with {census.target_only_bytes / 1e6:,.1f} MB at the last look"
    return policy.model_copy(update={"undo_cost": f"{policy.undo_cost} ({size})"})
