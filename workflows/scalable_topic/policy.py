"""What the operator may do in each phase of the migration to a scalable topic, and what a rollback costs there."""

from __future__ import annotations

from models.lifecycle.policy import ROLLING_BACK, TOO_SHORT, PhasePolicy
from models.lifecycle.status import Undo
from models.scalable_topic.phases import Phase

NO_WAY_BACK = "the topic is scalable, and nothing makes it regular again; its messages can be copied to a regular topic"
_UNTOUCHED = "the topic is as it was"

POLICIES: dict[Phase, PhasePolicy] = {
    Phase.PRECHECK: PhasePolicy(undo=Undo.FREE, undo_cost="nothing was changed", no_pause=TOO_SHORT),
    Phase.CLIENTS: PhasePolicy(undo=Undo.FREE, undo_cost=_UNTOUCHED),
    Phase.GUARD: PhasePolicy(
        undo=Undo.FREE, undo_cost="the policies of the namespace are put back", no_pause=TOO_SHORT
    ),
    Phase.FLIP: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=NO_WAY_BACK,
        no_rollback="the topic is becoming scalable; a half of that would lose messages",
        no_pause=TOO_SHORT,
    ),
    Phase.DRAIN: PhasePolicy(
        undo=Undo.NONE,
        undo_cost=NO_WAY_BACK,
        no_rollback=NO_WAY_BACK,
        no_pause="a pause would hold the policies of the namespace for longer; `proceed` ends the wait",
        gate="the wait ends; old messages stay where they are, and can be consumed later",
    ),
    Phase.VERIFY: PhasePolicy(undo=Undo.NONE, undo_cost=NO_WAY_BACK, no_rollback=NO_WAY_BACK, no_pause=TOO_SHORT),
    Phase.COMPLETE: PhasePolicy(undo=Undo.NONE, undo_cost=NO_WAY_BACK, no_rollback=NO_WAY_BACK, no_pause=TOO_SHORT),
    Phase.ROLLBACK: PhasePolicy(
        undo=Undo.NONE, undo_cost=ROLLING_BACK, no_rollback=ROLLING_BACK, no_pause=ROLLING_BACK
    ),
}
