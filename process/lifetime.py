"""Life cycle of a process that serves: ready, asked to stop, ended with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from process.exit_codes import CommandFailed, ExitCode, leave, report
from process.files import write_private

_log = logging.getLogger(__name__)


async def serve_and_leave(serving: Awaitable[ExitCode], ready_file: Path | None, what: str) -> NoReturn:
    """Serve, and end the process inside the loop: the loop's own end would wait for threads that hang in a store.

    Args:
        serving: returns the exit code.
        ready_file: removed at the start and at the end; it belongs to this process until then.
        what: name of the process, for the log.
    """
    if ready_file:
        try:
            _claim(ready_file)
        except CommandFailed as error:
            leave(report(error))
    # A process that was killed has left it, and its container's /tmp outlives the container.
    withdraw(ready_file)
    try:
        code = await serving
    except CommandFailed as error:
        code = report(error)
    except Exception:  # noqa: BLE001 - the last place that can report it
        _log.exception("the %s failed", what)
        code = ExitCode.UNEXPECTED
    finally:
        withdraw(ready_file)
    finish()
    leave(code)


_BEFORE_LEAVING: list[Callable[[], object]] = []


def before_leaving(action: Callable[[], object]) -> None:
    """Call `action` before this process ends by `serve_and_leave`; it must not block for long."""
    _BEFORE_LEAVING.append(action)


def finish() -> None:
    """Call all actions of `before_leaving`."""
    for action in _BEFORE_LEAVING:
        action()


def stop_on_signals() -> asyncio.Future[ExitCode]:
    """Return a future with the exit code of SIGTERM or SIGINT; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[ExitCode] = loop.create_future()

    def take(code: ExitCode) -> None:
        if stop.done():
            leave(ExitCode.INTERRUPTED)
        stop.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, take, ExitCode.OK)
    loop.add_signal_handler(signal.SIGINT, take, ExitCode.INTERRUPTED)
    return stop


def _claim(ready_file: Path) -> None:
    """Keep a lock next to the file until the process ends, however that happens.

    Raises:
        CommandFailed: another process has it, and each of both would remove the file of the other one.
    """
    lock = f"{ready_file}.lock"
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        cause, cure = f"{ready_file} belongs to another running process", "give each process a ready file of its own"
        raise CommandFailed(ExitCode.CONFLICT, cause, cure) from None
    except OSError as error:
        cause, cure = (
            f"{lock} cannot be locked: {error.strerror or error}",
            "name a file in a folder that can be written",
        )
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error


def report_ready(line: str, ready_file: Path | None) -> None:
    """Report that the process serves, on standard output and in a file."""
    if ready_file:
        write_private(ready_file, f"{line}\n")
    print(line, flush=True)


def withdraw(ready_file: Path | None) -> None:
    """Report that the process no longer serves."""
    if ready_file:
        # One that cannot be removed cannot be written either, which is reported.
        with contextlib.suppress(OSError):
            ready_file.unlink()
