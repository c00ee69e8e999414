"""Random walks of operators and failures through the bookie cluster migration: each of them comes to an end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from models.bookie_cluster.input import Direction
from models.bookie_cluster.phases import Phase
from models.lifecycle.status import Status, WaitKind
from models.lifecycle.verbs import Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    ATTRIBUTION,
    COPY_BACK,
    FAILED,
    HOLED,
    RESTART,
    AttributionScript,
    Script,
)
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.lifecycle.walks import CANCEL, DEAF, FAIL, LET, Walk, faults, hang, moves

ACTIVITIES = sorted({*RESTART, *ATTRIBUTION, *COPY_BACK, "flip_statuses", "remove_copies"})
LOSSES = {"build": FAILED, "copy_tail": HOLED}
GO = [LET] * 8


@dataclass(frozen=True)
class Case:
    """Answers, faults and verbs of one switch.

    Attributes:
        faults: activities that fail the first time that they may end, or that answer although they were cancelled.
        losses: whether ledgers cannot be copied, so that decisions are due.
        moves: what comes, each at a moment at which the switch waits for something.
    """

    routing: str
    faults: dict[str, str]
    losses: bool
    moves: list[str]

    def answer(self, activity: str) -> Any:
        """Return the answer of an activity that ends well."""
        return LOSSES.get(activity, ANSWERS[activity]) if self.losses else ANSWERS[activity]


cases = st.builds(
    Case,
    routing=st.sampled_from(["restart", "attribution"]),
    faults=faults(ACTIVITIES),
    losses=st.booleans(),
    moves=moves(14),
)


@given(case=cases)
@example(Case("restart", {}, losses=True, moves=[LET, LET, LET, Verb.PAUSE, Verb.PROCEED, CANCEL]))
@example(Case("restart", {"set_target": DEAF}, losses=False, moves=[*[LET] * 6, Verb.ROLLBACK, CANCEL, LET]))
@example(Case("restart", {"start_brokers": FAIL}, losses=False, moves=[*GO, LET, LET, Verb.CLEANUP]))
@example(Case("restart", {}, losses=False, moves=[*GO, Verb.ROLLBACK, CANCEL, LET, Verb.PROCEED]))
@example(Case("attribution", {"promote": DEAF}, losses=False, moves=[*[LET] * 6, Verb.ROLLBACK, LET, LET, CANCEL]))
async def test_every_walk_ends(stage: Harness, case: Case) -> None:
    """Any sequence of verbs and faults ends the switch with brokers directed to one cluster and started there."""
    hangs = {name: hang(case.faults.get(name, ""), case.answer(name)) for name in ACTIVITIES}
    script = (Script if case.routing == "restart" else AttributionScript)(
        **{name: [blocked, case.answer(name)] for name, blocked in hangs.items()}
    )
    run = await stage.start(script, rollback_window="PT15M", deletion_delay="PT15M")
    status = await Walk(run, undo_phase=Phase.ROLLED_BACK, is_idle=_is_idle).play(case.moves, hangs.values())

    assert (status.deadlines, "pause_since" in status.facts) == ({}, False)
    phases = [entry.phase for entry in status.history]
    directed, started = _last(run, "set_target"), _last(run, "start_brokers")
    given_up = Phase.ROLLED_BACK in phases and Phase.CLEANUP in phases
    assert not given_up or (case.routing == "restart" and Verb.PROCEED in case.moves)
    if Phase.ROLLED_BACK in phases and not given_up:
        assert directed is not Direction.FORWARD
        assert started is not Direction.FORWARD
        assert started is Direction.BACK or "stop_brokers" not in script.steps
    else:
        assert phases[-1] == Phase.CLEANUP
        assert directed is Direction.FORWARD
        assert (started is Direction.FORWARD) is (case.routing == "restart")
    assert script.steps[-1] == "release"


def _last(run: Run, activity: str) -> Direction | None:
    """Return the direction in which an activity ran last."""
    return next((call.args[0] for call in reversed(run.script.calls) if call.step == activity), None)


def _is_idle(status: Status) -> bool:
    """Return whether the switch is paused, decides, is in a window after its first census, or about to retry."""
    wait = status.waiting
    in_window = status.phase == Phase.ROLLBACK_WINDOW and wait is not None and wait.kind is WaitKind.WINDOW
    return not in_window or "target_only_ledgers" in status.facts
