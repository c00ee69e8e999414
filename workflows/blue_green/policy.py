"""What the operator may do in each phase of the blue-green migration, and what a rollback costs there."""

from __future__ import annotations

from models.blue_green.phases import BatchPhase, Phase
from models.lifecycle.policy import CLEANING_UP, CLEANUP_GATE, ROLLING_BACK, TOO_SHORT, WINDOW_WAITS, PhasePolicy
from models.lifecycle.status import Undo

AFTER_MOVE = (
    "clients write to green. The way back is a migration of its own: restart blue's brokers, which refuse producers "
    "that they sent away, and start BlueGreenMigration with blue and green swapped. It costs what the way there did: "
    "writes of each batch wait for seconds, and what was sent to green is consumed there first"
)
_HELD_BACK = "writes are held back, and a pause would prolong that; `rollback` lets them go"

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: PhasePolicy(
        undo=Undo.FREE, undo_cost="nothing was changed; a rollback ends the migration", no_pause=TOO_SHORT
    ),
    Phase.PROVISION: PhasePolicy(
        undo=Undo.FREE, undo_cost="clients are not affected; green keeps what was created there"
    ),
    Phase.FLIP: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="a batch that runs goes back if none of its topics is terminated, and to its end otherwise; "
        "namespaces that have moved stay with green",
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
        gate="the window ends, and blue stays as it is",
    ),
    Phase.CLEANUP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost="topics removed from blue are gone; green has what was not consumed there",
        no_rollback=AFTER_MOVE,
        no_pause=TOO_SHORT,
        no_cleanup=CLEANING_UP,
        gate=CLEANUP_GATE,
    ),
    Phase.ROLLBACK: PhasePolicy(
        undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK
    ),
}

_UNDER_WAY = "topics of this batch are terminated on blue, and their clients are on the way to green"

BATCH_POLICIES: dict[BatchPhase, PhasePolicy] = {
    BatchPhase.LOAD: PhasePolicy(undo=Undo.FREE, undo_cost="clients are not affected"),
    BatchPhase.SEED: PhasePolicy(
        undo=Undo.FREE,
        undo_cost="clients are not affected; copies stay on green, and the next run continues with them",
    ),
    BatchPhase.QUIESCE: PhasePolicy(
        undo=Undo.FREE, undo_cost="writes are let go again, and clients stay with blue", no_pause=_HELD_BACK
    ),
    BatchPhase.FLIP: PhasePolicy(
        undo=Undo.METADATA,
        undo_cost="free until the first topic is terminated; after that only with `unterminate`, and while green has "
        "neither clients nor messages of these topics",
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
