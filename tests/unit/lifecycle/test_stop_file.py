"""The stop file: why no item of a wave may start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from activities.lifecycle.runtime import Runtime
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


def _runtime(stop_file: str) -> Runtime:
    return Runtime(Settings.model_validate({"stop_file": stop_file}), cast("Any", None), "queue")
