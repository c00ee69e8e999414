"""Saved histories replay with the workflows of this version."""

from __future__ import annotations

import gc
import getpass
import json
import re
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from cli.commands.history import replay
from tests.histories.record import FOLDER, SCENES
from tests.workflows.lifecycle.changed import ChangedMigration, SlowMigration

HISTORIES = sorted(FOLDER.glob("*.json"))


def test_all_scenes_are_saved() -> None:
    """Each main path of each migration has its saved history."""
    assert {file.stem for file in HISTORIES} == set(SCENES)


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_history_replays(file: Path) -> None:
    """A migration that was begun by the version that recorded the history can be carried on by this one."""
    assert replay([file]) == {file: ""}


def test_change_is_noticed() -> None:
    """A change in the order of steps is noticed where these steps were taken, and nowhere else."""
    live, dry_run = (FOLDER / f"metadata-store-{name}.json" for name in ("live", "dry-run"))
    errors = replay([live, dry_run], [ChangedMigration])
    # As in `workers`: what is left of the broken replay must not end during a run of another worker.
    gc.collect()
    assert "Nondeterminism" in errors[live]
    assert errors[dry_run] == ""


def test_a_slow_task_replays() -> None:
    """A task that takes longer than Temporal lets a worker take, as on a busy machine, is not a fault of a replay."""
    dry_run = FOLDER / "metadata-store-dry-run.json"
    assert replay([dry_run], [SlowMigration]) == {dry_run: ""}


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_history_names_no_machine(file: Path) -> None:
    """Saved histories name neither the machine nor the user nor the folders on which they were recorded."""
    text = file.read_text()
    assert set(_values(json.loads(text), "identity")) == {"worker"}
    for own in (str(FOLDER.parent.parent), str(Path.home()), socket.gethostname(), f"/{getpass.getuser()}/"):
        assert not re.search(rf"(?<!\w){re.escape(own)}(?!\w)", text)
    assert not list(_values(json.loads(text), "stackTrace"))


def _values(tree: Any, name: str) -> list[str]:
    """Return all values of a field, however deep."""
    if isinstance(tree, list):
        return [value for item in cast("list[Any]", tree) for value in _values(item, name)]
    if not isinstance(tree, dict):
        return []
    fields = cast("dict[str, Any]", tree)
    return [*([fields[name]] if name in fields else []), *_values(list(fields.values()), name)]
