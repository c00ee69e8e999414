"""Random walks of operators and failures through the metadata store migration: each of them ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from models.lifecycle.status import Status
from models.lifecycle.verbs import Verb
from models.metadata_store.phases import Phase
from models.metadata_store.results import Restoration
from models.migration_flag import FlagPhase
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.lifecycle.walks import CANCEL, DEAF, FAIL, LET, Walk, faults, hang, moves
from tests.workflows.metadata_store.activities import ANSWERS, LIVE, OFFLINE, Script

ACTIVITIES = sorted({*LIVE, *OFFLINE, "unblock_writes"})
UNBLOCKED = Restoration(committed=False, flag=FlagPhase.FAILED)
COMMITTED = Restoration(committed=True, flag=FlagPhase.COMPLETED)


@dataclass(frozen=True)
class Case:
    """Input and events of one migration.

    Attributes:
        faults: activities that fail when they may end, or that answer although they were cancelled.
        committed: what the rollback finds.
        moves: what comes, each at a moment at which the migration waits for something.
    """

    mode: str
    cleanup: str
    faults: dict[str, str]
    committed: bool
    moves: list[str]


cases = st.builds(
    Case,
    mode=st.sampled_from(["live", "offline"]),
    cleanup=st.sampled_from(["leave", "remove"]),
    faults=faults(ACTIVITIES),
    committed=st.booleans(),
    moves=moves(10),
)


@given(case=cases)
@example(Case("live", "leave", {}, committed=False, moves=[LET, Verb.PAUSE, LET, CANCEL]))
@example(Case("live", "remove", {"verify": DEAF}, committed=True, moves=[*[LET] * 4, Verb.ROLLBACK, CANCEL, LET]))
@example(Case("live", "leave", {"prepare": FAIL, "unblock_writes": FAIL}, committed=False, moves=[LET] * 3))
async def test_every_walk_ends(stage: Harness, case: Case) -> None:
    """After any verbs, failures and ignored cancellations the migration ends, and writes are committed or unblocked."""
    restoration = COMMITTED if case.committed else UNBLOCKED
    hangs = {
        name: hang(case.faults.get(name, ""), restoration if name == "unblock_writes" else None) for name in ACTIVITIES
    }
    # What cannot be given up is tried until it succeeds: the rollback, and a commit that had begun.
    lasting = {
        "unblock_writes": [hangs["unblock_writes"], restoration],
        "complete": [hangs["complete"], ANSWERS["complete"]],
    }
    answers: dict[str, Any] = {**hangs, **lasting}
    run = await stage.start(Script(**answers), mode=case.mode, cleanup=case.cleanup, validation_window="PT15M")
    # A commit that turned out to have begun is finished after the rollback, which nothing interrupts either.
    status = await Walk(run, undo_phase=Phase.FAILED, is_idle=_is_idle).play(case.moves, hangs.values())

    last = next((step for step in reversed(run.script.steps) if step in ("prepare", "complete", "unblock_writes")), "")
    assert last != "prepare"
    phases = [entry.phase for entry in status.history]
    if last == "complete":
        assert Phase.VALIDATION in phases
    if Phase.FAILED in phases:
        assert (Phase.VALIDATION in phases) is case.committed


def _is_idle(status: Status) -> bool:
    """Return whether it is paused, in its window with the first census done, or about to repeat the rollback."""
    return status.paused or "still_on_source" in status.facts or status.phase == Phase.FAILED
