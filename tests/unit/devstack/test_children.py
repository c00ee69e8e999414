"""Programs that are given orders, as real processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pulsar_devstack.servers.child_programs import Child, ChildFailed
from tests.support.waiting import wait_for

LIMIT = 60.0
"""Seconds in which programs start and answer, on a busy machine too."""

_ECHO = """
import json, os, sys
print('noise', flush=True)
print('READY', flush=True)
for line in sys.stdin:
    print(json.dumps({'length': len(line.strip()), 'seen': int(os.environ['SEEN'])}), flush=True)
print('over', file=sys.stderr)
"""


def _child(tmp_path: Path, code: str) -> Child:
    return Child([sys.executable, "-c", code], tmp_path / "child.log", {"SEEN": "7"})


def test_orders_are_answered_with_figures(tmp_path: Path) -> None:
    """A child is awaited, takes orders and answers each with its figures; other lines are passed over."""
    with _child(tmp_path, _ECHO) as child:
        child.await_line("READY", LIMIT)
        child.order("copy")
        assert child.figures(LIMIT) == {"length": 4, "seen": 7}
        child.order("compare")
        assert child.figures(LIMIT) == {"length": 7, "seen": 7}


def test_early_end_shows_the_log(tmp_path: Path) -> None:
    """A child that ends instead of answering fails with the end of what it wrote to its standard error."""
    with (
        _child(tmp_path, "raise SystemExit('no such store')") as child,
        pytest.raises(ChildFailed, match="no such store"),
    ):
        child.await_line("READY", LIMIT)


def test_silence_ends_after_its_limit(tmp_path: Path) -> None:
    """A child that says nothing fails the wait at its limit, and does not outlive its block."""
    with _child(tmp_path, "input()") as child:
        with pytest.raises(ChildFailed, match=r"no 'READY' in 0 s"):
            child.await_line("READY", 0.2)
        pid = child.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """A process that is killed inside the block takes its child along."""
    code = f"""
import sys, time
from pathlib import Path
from pulsar_devstack.servers.child_programs import Child
command = [sys.executable, "-c", "print('READY', flush=True); input()"]
with Child(command, Path({str(tmp_path / "inner.log")!r})) as child:
    child.await_line("READY", {LIMIT})
    print(f"PID {{child.pid}}", flush=True)
    time.sleep(600)
"""
    with _child(tmp_path, code) as parent:
        pid = parent.await_line("PID", LIMIT).split()[1]
        os.kill(parent.pid, signal.SIGKILL)
        wait_for("the end of the child", lambda: not Path(f"/proc/{pid}").exists(), LIMIT)
