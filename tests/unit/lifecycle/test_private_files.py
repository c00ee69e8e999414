"""Files that a process writes for its user alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from process import lifetime
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from process.lifetime import report_ready, serve_and_leave


def test_files_are_private(tmp_path: Path) -> None:
    """Only the user may read a file, also one that exists and is replaced."""
    file = tmp_path / "history.json"
    file.touch(0o666)
    for text in ("first and longer", "second"):
        write_private(file, text)
        assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o600


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link that another user put into a shared folder does not lead to a file of this user."""
    own, link = tmp_path / "own", tmp_path / "ready"
    own.write_text("kept")
    link.symlink_to(own)
    for write in (lambda: write_private(link, "changed"), lambda: report_ready("ready", link)):
        with pytest.raises(CommandFailed, match="symbolic links"):
            write()
    assert own.read_text() == "kept"


def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    """A folder that does not exist is named in one line, also for the file of a process that is ready."""
    file = tmp_path / "none" / "ready"
    with pytest.raises(CommandFailed, match="none/ready cannot be written: No such file or directory") as failed:
        report_ready("ready", file)
    assert failed.value.code is ExitCode.USAGE


@pytest.mark.parametrize("is_folder", [False, True])
async def test_a_process_is_not_ready_because_one_before_was(
    is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a killed process is removed before another one starts; a folder of that name stays."""
    ready = tmp_path / "ready"
    ready.mkdir() if is_folder else ready.write_text("ready")
    seen: list[object] = []
    monkeypatch.setattr(lifetime, "leave", seen.append)

    async def serve() -> ExitCode:
        seen.append(ready.exists())
        report_ready("ready", ready)
        seen.append(ready.exists())
        return ExitCode.OK

    await serve_and_leave(serve(), ready, "test")
    assert seen == ([True, ExitCode.USAGE] if is_folder else [False, True, ExitCode.OK])
    assert ready.exists() is is_folder
