"""Commands that end with the step that runs them, with everything that they began; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.lifecycle import command_leash
from activities.lifecycle.context import ActivityContext, Cancelled
from activities.lifecycle.leashed_command import CommandFailed, run_leashed
from clients.errors import Superseded
from models.child_environment import child_environment
from tests.support.waiting import wait_for

LONG = "600"
LIMIT = 60.0
"""Seconds in which programs start and end, on a busy machine too."""
SECRET = "open-sesame"


def nothing() -> None:
    """Accept that the claim is ours."""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """The file in which the script notes its own process and its child."""
    return tmp_path / "pids"


def script(pids: Path, *, deaf: bool = False) -> list[str]:
    """Return a command that starts a child process and runs for long; a deaf one ignores TERM."""
    ignore = "trap '' TERM; " if deaf else ""
    # The inner shell's own number: unprotected, the outer one would put in its own.
    child = f"{ignore}echo \\$\\$ >> {pids}; while :; do sleep 0.1; done"
    return ["sh", "-c", f'echo $$ >> {pids}; sh -c "{child}" & sleep {LONG}']


def begun(pids: Path) -> list[int]:
    """Wait for both processes, and return their ids."""
    return wait_for("both processes", lambda: two(pids), LIMIT)


def two(pids: Path) -> list[int]:
    """Return the ids of both processes; none before both run."""
    ids = pids.read_text().split() if pids.exists() else []
    return [int(pid) for pid in ids] if len(set(ids)) == 2 else []


def runs(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # Not there, or gone while it was read.
        return False


def test_environment_and_end() -> None:
    """A command gets its variables; a failure names the exit code, and nothing of the output."""
    run_leashed(["sh", "-c", 'test "$ORDER" = 7'], child_environment({"ORDER": "7"}), LIMIT, ActivityContext(), nothing)
    with pytest.raises(CommandFailed, match="ended with 3") as failed:
        run_leashed(["sh", "-c", f"echo {SECRET}; exit 3"], child_environment({}), LIMIT, ActivityContext(), nothing)
    assert SECRET not in str(failed.value)
    with pytest.raises(CommandFailed, match="ended with 127"):
        run_leashed(["/no/such/program", SECRET], child_environment({}), LIMIT, ActivityContext(), nothing)


def test_a_background_process_is_not_waited_for(pids: Path) -> None:
    """A command that starts something in the background and ends well has ended; what it started lives on."""
    run_leashed(
        ["sh", "-c", f"sleep {LONG} & echo $! > {pids}"], child_environment({}), LIMIT, ActivityContext(), nothing
    )
    background = int(pids.read_text())
    assert runs(background)
    os.kill(background, signal.SIGKILL)


def test_cancellation_ends_the_whole_group(pids: Path) -> None:
    """When a step is cancelled, the command and what it began have ended before the step ends, by force if need be."""
    context = ActivityContext()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_leashed, script(pids, deaf=True), child_environment({}), 600, context, nothing)
        processes = begun(pids)
        context.cancel()
        with pytest.raises(Cancelled):
            running.result(LIMIT)
    assert not [pid for pid in processes if runs(pid)]


def fails(pids: Path, limit: float, require: Callable[[], object], error: type[Exception]) -> None:
    """Run the script until it is ended; both processes must be gone then."""
    with pytest.raises(error):
        run_leashed(script(pids), child_environment({}), limit, ActivityContext(), require)
    assert not [pid for pid in two(pids) if runs(pid)]


def test_a_limit_ends_the_command(pids: Path) -> None:
    """A command that takes too long is ended together with its children."""
    fails(pids, 1.5, nothing, CommandFailed)


def test_a_lost_claim_ends_it(pids: Path) -> None:
    """A step that has lost its claim begins nothing, and a command that runs then is ended."""

    def lost() -> None:
        if pids.exists():
            raise Superseded("a newer owner is there")

    fails(pids, 600, lost, Superseded)
    pids.unlink()
    pids.touch()
    with pytest.raises(Superseded):
        run_leashed(["sh", "-c", f"echo late > {pids}"], child_environment({}), LIMIT, ActivityContext(), lost)
    assert not pids.read_text()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_command_of_a_frozen_or_dead_worker_ends(pids: Path, number: signal.Signals) -> None:
    """Before Temporal starts another attempt, the command of a worker that is frozen or dead has ended."""
    program = (
        "import sys; from activities.lifecycle.context import ActivityContext;"
        "from activities.lifecycle.leashed_command import run_leashed;"
        "from models.child_environment import child_environment;"
        "run_leashed(sys.argv[1:], child_environment({}), 600, ActivityContext(), lambda: None)"
    )
    # A separate group: when the tests' group loses its leader, the kernel lets its frozen members continue.
    with subprocess.Popen([sys.executable, "-c", program, *script(pids)], start_new_session=True) as worker:
        try:
            processes = begun(pids)
            worker.send_signal(number)
            wait_for("the command to end", lambda: not [pid for pid in processes if runs(pid)], LIMIT)
        finally:
            worker.kill()


def test_a_late_command_is_not_run(tmp_path: Path) -> None:
    """A worker that froze between its check of the claim and the command runs nothing when it continues."""
    leash, done = Path(command_leash.__file__), tmp_path / "done"
    issued = time.time() - command_leash.LEASH - 1
    late = subprocess.run(
        [sys.executable, "-I", str(leash), repr(issued), "-1", "touch", str(done)], check=False, timeout=LIMIT
    )
    assert late.returncode == command_leash.STALE
    assert not done.exists()
