"""Lines of the log that workflows write."""

from __future__ import annotations

from cli.commands.history import replay
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from tests.histories.record import FOLDER
from tests.support.lifecycle.log_lines import log_lines
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.metadata_store.activities import Script, between_rounds


async def test_changes_of_a_migration_are_lines(stage: Harness) -> None:
    """Each phase, wait and verb of a migration is a line with its workflow id, run, phase and what changed."""
    with log_lines() as lines:
        run = await stage.start(Script(), hold_before_cutover=True, validation_window="PT0S")
        await run.until(between_rounds(run.script))
        await run.signal(Verb.RESUME)
        await run.signal(Verb.PROCEED)
        assert (await run.report()).outcome is Outcome.DONE
    own = {"migration": run.handle.id, "run": run.handle.first_execution_run_id, "logger": "temporalio.workflow"}
    phases = [line["phase"] for line in lines.of(**own, undo="free")]
    assert phases[:3] == ["PRECHECK", "PRE_COPY", "CATCH_UP"]
    [start] = lines.of(**own, event="phase COPYING starts")
    assert (start["phase"], start["undo"], start["level"]) == ("COPYING", "metadata", "INFO")
    [end] = lines.of(**own, event="phase COPYING ends, done")
    assert end["seconds"] >= 0
    [wait] = lines.of(**own, event="waits for the operator's `proceed` to cut over")
    assert (wait["wait"], wait["phase"], wait["action"]) == ("hold", "CATCH_UP", "give `proceed` to cut over")
    [waited] = lines.of(**own, event="no longer waits for the operator's `proceed` to cut over")
    assert waited["wait"] == "hold"
    [refused] = lines.of(**own, verb="resume")
    assert (refused["accepted"], refused["level"]) == (False, "WARNING")
    [accepted] = lines.of(**own, verb="proceed")
    assert (accepted["accepted"], accepted["phase"]) == (True, "CATCH_UP")
    [over] = lines.of(**own, event="the migration ends, done")
    assert over["outcome"] == "done"


async def test_a_refused_update_is_a_line(stage: Harness) -> None:
    """An update that is refused is one line of the log."""
    with log_lines() as lines:
        run = await stage.start(Script(), hold_before_cutover=True)
        await run.until(between_rounds(run.script))
        await run.refusal("steer", {"verb": "resume"})
        await run.signal(Verb.ROLLBACK)
        await run.report()
    [refused] = lines.of(migration=run.handle.id, update="steer")
    assert "it is not paused" in refused["event"]
    [over] = lines.of(migration=run.handle.id, outcome="rolled back")
    assert over["level"] == "WARNING"


def test_a_replay_writes_nothing() -> None:
    """A line that a workflow has written is not written again when another worker replays it."""
    history = FOLDER / "metadata-store-live.json"
    with log_lines() as lines:
        assert replay([history]) == {history: ""}
    assert lines.of(logger="temporalio.workflow") == []
