"""The check of how the project writes finds what it looks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.prose import idioms
from tests.prose.idioms import FIRST_CHECKED


def test_idioms_of_commit_messages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A banned idiom in a commit message is a problem, with the line of the message."""
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "--quiet"], check=True, timeout=30)
    messages = ["What the first one was told", FIRST_CHECKED, "Retry a copy\n\nThe worker was told to stop."]
    for message in messages:
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", message], check=True, timeout=30)
    (problem,) = idioms.in_commits()
    assert (problem.line, problem.kind) == (2, "idiom")
    assert problem.text.startswith("'told'")


def test_files_without_version_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an unpacked archive all files are checked but those that tools make."""
    for name in ("a.py", "docs/b.md", "__pycache__/c.py", ".venv/d.py", "image.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    monkeypatch.chdir(tmp_path)
    assert idioms.files_below(["."]) == [Path("a.py"), Path("docs/b.md")]
    assert list(idioms.in_commits()) == []
