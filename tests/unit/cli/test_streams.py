"""Output of commands under locales other than UTF-8, and to streams that the caller has closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from process.exit_codes import ExitCode

_PLAN = ["cluster=dev", "source=zk:zk-1:2181", "target=oxia://oxia-1:6648/default"]
_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _run(*arguments: str, closed: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process whose locale knows ASCII only."""
    words = [sys.executable, "-m", "pulsar_migrate", *arguments]
    if closed:
        words = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    return subprocess.run(words, capture_output=True, check=False, timeout=60, env={**os.environ, **_ASCII})


def test_output_is_utf8_under_each_locale(tmp_path: Path) -> None:
    """A command that succeeds says so also where the locale has no arrow: a plan is written and read as UTF-8."""
    plan = tmp_path / "plan.yaml"
    written = _run("init", "metadata-store", *(word for pair in _PLAN for word in ("--set", pair)), "--to", str(plan))
    assert (written.returncode, written.stderr.count(b"Traceback")) == (ExitCode.OK, 0)
    assert "zk:zk-1:2181 → oxia://oxia-1:6648/default" in written.stdout.decode("utf-8")
    read = _run("validate", str(plan), "-o", "json")
    assert read.returncode == ExitCode.OK
    assert "→" in read.stdout.decode("utf-8")


@pytest.mark.parametrize(("argument", "unbuffered"), [("--version", ""), ("--help", "1")])
def test_a_full_disk_is_one_line(argument: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that cannot be written is reported in one line, with the exit code of files that cannot be written."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    ended = _run(argument, closed=">/dev/full")
    cause = "standard output cannot be written: No space left on device"
    assert ended.stderr.decode() == f"error: {cause}. cure: free space there, or send the output elsewhere\n"
    assert ended.returncode == ExitCode.USAGE


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "2>/dev/full"])
def test_a_closed_stream_changes_no_exit_code(closed: str) -> None:
    """The exit code says what happened where the messages are discarded, and they do not go to the other stream."""
    ended = _run("validate", "/nowhere", closed=closed)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stdout == b""
    assert ended.stderr == b"" if closed.startswith("2") else b"error: /nowhere" in ended.stderr
