"""The stop file: why no item of a wave may start."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.metadata_store.context import MetadataStoreTask
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.metadata_store.input import MetadataStoreInput
from models.settings import Settings


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, ""),
        (b"", "the stop switch is set: no reason is given"),
        (b"OPS-7\nmore", "the stop switch is set: OPS-7"),
        (b"\xff\x1b[2J", "the stop switch is set: \ufffd\\x1b[2J"),
    ],
)
def test_reasons(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """A file stops, whatever is in it, and no file does not."""
    file = tmp_path / "stop"
    if content is not None:
        file.write_bytes(content)
    assert _runtime(str(file)).stopped_because == reason


def test_a_file_that_cannot_be_read_stops(tmp_path: Path) -> None:
    """A file that cannot be read stops too; without the setting nothing is read."""
    assert _runtime(str(tmp_path)).stopped_because == "the stop file cannot be read (Is a directory)"
    assert _runtime("").stopped_because == ""


def test_a_file_that_may_be_there_stops(tmp_path: Path) -> None:
    """A folder that is missing, as that of a file system that is not mounted, stops, and so does a dangling link."""
    assert _runtime(str(tmp_path / "mount" / "stop")).stopped_because == (
        f"the folder of the stop file is not there: {tmp_path / 'mount'}"
    )
    (tmp_path / "stop").symlink_to(tmp_path / "gone")
    assert _runtime(str(tmp_path / "stop")).stopped_because == "the stop file is a link to a file that is not there"


def test_a_step_measures_its_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that the file holds shows why, and says how long that took, which times of its item leave out."""
    file, context, shown = tmp_path / "stop", ActivityContext(), list[str]()
    file.write_text("OPS-7")

    def pause(seconds: float) -> None:
        assert seconds > 0
        shown.append(context.report().summary)
        time.sleep(0.05)
        file.unlink()

    monkeypatch.setattr(context, "pause", pause)
    input = MetadataStoreInput(cluster="dev", source="zk:zk:2181", target="oxia://oxia:6648")
    execution = Execution(input=input, run_id="run-1", started=datetime(2026, 1, 1, tzinfo=UTC), epoch=1)
    attempt = Attempt.of(execution, input.workflow_id, 1)
    with MetadataStoreTask(_runtime(str(file)), execution, attempt, context) as task:
        assert timedelta(seconds=0.05) <= task.wait_while_stopped() < timedelta(seconds=30)
        assert (shown, context.report().waiting) == (["waits for the stop switch is set: OPS-7"], None)


def _runtime(stop_file: str) -> Runtime:
    return Runtime(Settings.model_validate({"stop_file": stop_file}), cast("Any", None), "queue")
