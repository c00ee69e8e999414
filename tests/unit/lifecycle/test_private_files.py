"""Files that a process writes for its user alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from process import lifetime
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from process.lifetime import report_ready, serve_and_leave
from tests.environments import ROOT


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


def test_a_ready_file_belongs_to_one_process(tmp_path: Path) -> None:
    """A second process with the same file is refused, and leaves the file; after the end of the first one it starts."""
    ready = tmp_path / "ready"
    program = f"""
import asyncio, sys
from pathlib import Path
from process.exit_codes import ExitCode
from process.lifetime import report_ready, serve_and_leave

async def serve():
    report_ready("serves", Path({str(ready)!r}))
    sys.stdin.read()
    return ExitCode.OK

asyncio.run(serve_and_leave(serve(), Path({str(ready)!r}), "test"))
"""

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with start() as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "serves\n"
        with start() as second:
            _, refused = second.communicate(timeout=60)
        assert second.returncode == ExitCode.CONFLICT
        cause = f"{ready} belongs to another running process"
        assert refused == f"error: {cause}. cure: give each process a ready file of its own\n"
        assert ready.read_text() == "serves\n"
        first.kill()
    with start() as third:
        assert third.communicate("", timeout=60) == ("serves\n", "")
    assert (third.returncode, ready.exists()) == (ExitCode.OK, False)
