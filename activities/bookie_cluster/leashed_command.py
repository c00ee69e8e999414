"""Commands of the operator's, which end with the step that runs them: when it is cancelled, dies or freezes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from activities.bookie_cluster import command_leash
from activities.lifecycle.context import ActivityContext
from clients.errors import RetryableError

_LEASH = Path(command_leash.__file__)
_WRITE_EVERY = 0.5
_POLL = 0.05
_REQUIRE_EVERY = 1.0
_TAIL = 2_000
_LOG = logging.getLogger(__name__)


class CommandFailed(Exception):
    """A command did not run, was ended, or failed; says why, without a word of what it printed."""


def run_leashed(
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float,
    context: ActivityContext,
    require: Callable[[], object],
) -> None:
    """Run a command to its end.

    Its process group is ended (TERM, and KILL where that does not help) and waited for when the step is cancelled, has
    lost its claim, or takes too long. Where the worker dies or freezes the leash ends it, before Temporal begins
    another attempt. What it prints goes to the worker's log alone: it may hold secrets, and failures stay in the
    history.

    Args:
        command: program and arguments.
        environment: variables beside the worker's own.
        limit: longest run in seconds.
        context: tells of a cancellation.
        require: raises where the step has lost its claim; asked right before the command begins, and while it runs.

    Raises:
        CommandFailed: it failed.
        Cancelled: the step was cancelled.
    """
    # Before the look at the claim: a worker that freezes behind it finds the order too old when it thaws.
    issued = time.time()
    require()
    context.check()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-I", str(_LEASH), repr(issued), *command],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        released = threading.Event()
        # By itself, because looks at the claim may take their time.
        holder = threading.Thread(target=_hold, args=(process.stdin, released), daemon=True, name="command-leash")
        holder.start()
        try:
            _wait(process, limit, context, require)
        finally:
            released.set()
            holder.join()
            process.wait()
            _log(command[0], said)
    if process.returncode:
        raise CommandFailed(_meaning(process.returncode))


def _wait(
    process: subprocess.Popen[bytes], limit: float, context: ActivityContext, require: Callable[[], object]
) -> None:
    begun = looked = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if now - begun > limit:
            raise CommandFailed(f"took longer than {limit:g} s and was ended")
        if now - looked > _REQUIRE_EVERY:
            # A store that does not answer says nothing of the claim.
            with suppress(RetryableError):
                require()
            looked = time.monotonic()
        context.pause(_POLL)


def _hold(leash: IO[bytes], released: threading.Event) -> None:
    """Tell the leash again and again that the command is wanted, and let go at the end."""
    # The command may have ended meanwhile.
    with suppress(OSError):
        while not released.wait(_WRITE_EVERY):
            leash.write(b".")
            leash.flush()
    with suppress(OSError):
        leash.close()


def _log(program: str, said: IO[bytes]) -> None:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL))
    if text := said.read().decode(errors="replace").strip():
        _LOG.info("%s printed at its end: %s", program, text)


def _meaning(code: int) -> str:
    if code == command_leash.STALE:
        return "was not begun: the order was too old, because the worker had been frozen"
    if code == command_leash.ENDED:
        return "was ended, because the worker had been frozen"
    return f"ended with {code}; the worker's log has what it printed"
