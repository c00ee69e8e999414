"""The search for planted secrets finds them: a search that finds nothing would prove nothing."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.lifecycle.environment import PLANTED, Secrets, written_texts
from tests.support.lifecycle.marks import marked
from tests.support.lifecycle.planted import SecretWatch
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.waiting import wait_for

ENCODED = base64.b64encode(f"user:{PLANTED}".encode()).decode()


class Histories:
    """Double of an operator: the histories that Temporal has."""

    def __init__(self, *histories: bytes) -> None:
        self._histories = list(histories)

    def histories(self) -> list[bytes]:
        """Return the histories."""
        return self._histories


@pytest.mark.parametrize("place", ["", "history", "log", "file"])
@pytest.mark.parametrize("text", [PLANTED, PLANTED.encode().hex(), ENCODED])
def test_each_place_is_searched(tmp_path: Path, place: str, text: str) -> None:
    """A mark in a history, in the log or in a temporary file is found, in each form; without one nothing is."""
    (temporary := tmp_path / "temporary" / "spark").mkdir(parents=True)
    worker = WorkerProcess("127.0.0.1:1", tmp_path)
    worker.log.write_text(f"refused: {text if place == 'log' else ''}")
    (temporary / "shuffle").write_bytes(b"\xff" + (text if place == "file" else "").encode())
    operator: Any = Histories(b"\x0a\xff" + (text if place == "history" else "").encode() + b"\x00")
    hits = marked(written_texts(worker, operator, temporary.parent), Secrets(tmp_path).marks)
    assert bool(hits) == bool(place)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
@pytest.mark.parametrize("where", ["environment", "arguments"])
def test_programs_are_searched(where: str) -> None:
    """A program that a process starts while it is watched is found by its environment and by its arguments."""
    program = [sys.executable, "-c", "input()", *([PLANTED] if where == "arguments" else [])]
    environment = {**os.environ, **({"TOKEN": PLANTED} if where == "environment" else {})}
    with SecretWatch(lambda: [os.getpid()], [PLANTED], [], every=0.01) as watch:
        child = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE)
        try:
            wait_for("the program to be found", lambda: bool(watch.found), 60)
        finally:
            child.communicate(b"\n", timeout=60)
    assert all("input()" in place for place in watch.found)
