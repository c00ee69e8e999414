"""Commands of the settings: with a clean environment, and an end when the step ends that runs them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from activities.lifecycle import command_leash
from activities.lifecycle.context import ActivityContext
from clients.errors import RetryableError

_LEASH = Path(command_leash.__file__)
_POLL = 0.05
_WRITE_EVERY = 0.5
_REQUIRE_EVERY = 1.0
_LOGGED_BYTES = 2_000
_LOG = logging.getLogger(__name__)


class CommandFailed(Exception):
    """A command did not run, was terminated, or failed; says why, without its output.

    Attributes:
        exit_code: its own; None where it did not end by itself.
        output: the end of what it printed, which may have secrets.
    """

    def __init__(self, why: str, exit_code: int | None = None, output: str = "") -> None:
        super().__init__(why)
        self.exit_code = exit_code
        self.output = output


def run_leashed(
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float,
    context: ActivityContext,
    require: Callable[[], object],
    *,
    given: bytes = b"",
) -> None:
    """Run a command to its end.

    Its process group is ended (TERM, and KILL where that does not help) and waited for when the step is cancelled, has
    lost its claim, or takes too long. Where the worker dies or freezes the leash ends it, before Temporal begins
    another attempt. What it prints goes to the worker's log alone: it may hold secrets, and failures stay in the
    history.

    Args:
        command: program and arguments.
        environment: all of its variables.
        limit: longest run in seconds.
        context: reports a cancellation.
        require: raises where the step has lost its claim; asked right before the command begins, and while it runs.
        given: its standard input; empty for none.

    Raises:
        CommandFailed: it failed.
        Cancelled: the step was cancelled.
    """
    # Before the check of the claim: a worker that freezes after it finds the order too old when it thaws.
    issued = time.time()
    require()  # mutant: shared/command-without-a-check-of-the-claim
    context.check()
    with ExitStack() as opened:
        said = opened.enter_context(tempfile.TemporaryFile())
        files: list[int] = []
        if given:
            file = opened.enter_context(tempfile.TemporaryFile())
            file.write(given)
            file.seek(0)
            files.append(file.fileno())
        process = subprocess.Popen(
            [sys.executable, "-I", str(_LEASH), repr(issued), str(files[0] if files else -1), *command],
            env=environment,
            pass_fds=files,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        released = threading.Event()
        # In its own thread, because checks of the claim may be slow.
        holder = threading.Thread(target=_hold, args=(process.stdin, released), daemon=True, name="command-leash")
        holder.start()
        try:
            _wait(process, limit, context, require)
        finally:
            released.set()
            holder.join()
            process.wait()  # mutant: shared/command-is-not-waited-for
            printed = _end_of(said)
            if printed:
                _LOG.info("%s printed at its end: %s", command[0], printed)
    if code := process.returncode:
        by_itself = code not in (command_leash.STALE, command_leash.ENDED, command_leash.ABSENT)
        raise CommandFailed(_meaning(code), code if by_itself else None, printed)


def _wait(
    process: subprocess.Popen[bytes], limit: float, context: ActivityContext, require: Callable[[], object]
) -> None:
    begun = looked = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if now - begun > limit:  # mutant: shared/command-without-a-limit
            raise CommandFailed(f"took longer than {limit:g} s and was ended")
        if now - looked > _REQUIRE_EVERY:
            # A store that does not answer proves nothing about the claim.
            with suppress(RetryableError):
                require()  # mutant: shared/command-continues-without-the-claim
            looked = time.monotonic()
        context.pause(_POLL)  # mutant: shared/command-is-not-cancelled


def _hold(leash: IO[bytes], released: threading.Event) -> None:
    """Keep the leash of a command alive while it is wanted, and release it at the end."""
    # The command may have ended already.
    with suppress(OSError):
        while not released.wait(_WRITE_EVERY):
            leash.write(b".")
            leash.flush()
    with suppress(OSError):
        leash.close()


def _end_of(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _LOGGED_BYTES))
    return said.read().decode(errors="replace").strip()


def _meaning(code: int) -> str:
    if code == command_leash.STALE:
        return "was not begun: the order was too old, because the worker had been frozen"
    if code == command_leash.ENDED:
        return "was ended, because the worker had been frozen"
    return f"ended with {code}; the worker's log has what it printed"
