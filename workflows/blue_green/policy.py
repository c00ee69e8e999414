"""Verbs that operators may use in each phase of the blue-green migration, and the cost of a rollback there."""

from __future__ import annotations

from models.blue_green.phases import BatchPhase, Phase
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

AFTER_MOVE = (
    "clients write to green. To go back, run a failback: restart blue's brokers, which refuse producers that they "
    "redirected, and start BlueGreenMigration with blue and green swapped. A failback costs the same as the migration: "
    "writes of each batch wait for seconds, and messages on green are consumed there first"
)
_HELD_BACK = "writes are held back, and a pause would prolong that; `rollback` releases them"

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: PhasePolicy(
        undo=Undo.FREE, undo_cost="nothing was changed; a rollback ends the migration", no_pause=TOO_SHORT
    ),
    Phase.PROVISION: PhasePolicy(
        undo=Undo.FREE, undo_cost="clients are not affected; green keeps what was created there"
    ),
    Phase.FLIP: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="a running batch is rolled back if none of its topics is terminated, and completed otherwise; "
        "namespaces that have moved stay on green",
        pause_effect="no batch starts, and a copy of backlogs stops within seconds; `resume` continues",
    ),
    Phase.COMPLETE: PhasePolicy(
        undo=Undo.COPY_BACK, undo_cost=AFTER_MOVE, no_rollback="the migration is being completed", no_pause=TOO_SHORT
    ),
    Phase.GRACE: PhasePolicy(
        undo=Undo.COPY_BACK,
        undo_cost=AFTER_MOVE,
        no_rollback=AFTER_MOVE,
        no_pause=WINDOW_WAITS,
        no_cleanup="",
        gate="the window ends, and blue is not changed",
    ),
    Phase.CLEANUP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost="topics deleted from blue are gone; green has all messages that were not consumed on blue",
        no_rollback=AFTER_MOVE,
        no_pause=TOO_SHORT,
        no_cleanup=CLEANING_UP,
        gate=CLEANUP_GATE,
    ),
    Phase.ROLLBACK: PhasePolicy(
        undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK
    ),
}

_UNDER_WAY = "topics of this batch are terminated on blue, and their clients connect to green"

BATCH_POLICIES: dict[BatchPhase, PhasePolicy] = {
    BatchPhase.LOAD: PhasePolicy(undo=Undo.FREE, undo_cost="clients are not affected"),
    BatchPhase.SEED: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="clients are not affected; copies stay on green, and the next run continues them",
        pause_effect=COPY_STOPS,
    ),
    BatchPhase.QUIESCE: PhasePolicy(
        undo=Undo.FREE, undo_cost="writes are released, and clients stay on blue", no_pause=_HELD_BACK
    ),
    BatchPhase.FLIP: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="free until the first topic is terminated; after that only with `unterminate`, while green has no "
        "clients and no messages of these topics",
        no_pause=_HELD_BACK,
    ),
    BatchPhase.DRAIN: PhasePolicy(
        undo=Undo.COPY_BACK, undo_cost=AFTER_MOVE, no_rollback=_UNDER_WAY, no_pause="it only watches"
    ),
    BatchPhase.VERIFY: PhasePolicy(
        undo=Undo.COPY_BACK, undo_cost=AFTER_MOVE, no_rollback=_UNDER_WAY, no_pause=TOO_SHORT
    ),
    BatchPhase.ROLLBACK: PhasePolicy(
        undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK
    ),
}
