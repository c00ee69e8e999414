"""The check of how the project writes finds what it looks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.prose import idioms


def test_idioms_of_commit_messages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A banned idiom in a commit message is a problem, with the line of the message."""
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "--quiet"], check=True, timeout=30)
    message = "Retry a copy\n\nThe worker was told to stop."
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", message], check=True, timeout=30)
    (problem,) = idioms.in_commits()
    assert (problem.line, problem.kind) == (2, "idiom")
    assert problem.text.startswith("'told'")
