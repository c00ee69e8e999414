"""Exit codes of the command line, and the error that carries one."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import NoReturn

from models.lifecycle.failures import FailureKind
from models.text import printable


class ExitCode(IntEnum):
    """Exit codes of commands; a number never changes its meaning."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    PRECHECK = 3
    VERIFICATION = 4
    REFUSED = 5
    CONFLICT = 6
    UNREACHABLE = 7
    FAILED = 8
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.UNEXPECTED: "unexpected error",
    ExitCode.USAGE: "wrong input or settings",
    ExitCode.PRECHECK: "the precheck found blockers",
    ExitCode.VERIFICATION: "a comparison found differences",
    ExitCode.REFUSED: "refused: not legal now",
    ExitCode.CONFLICT: "already running, or held by another",
    ExitCode.UNREACHABLE: "Temporal, a worker or a store did not answer",
    ExitCode.FAILED: "the migration failed or was rolled back",
    ExitCode.INTERRUPTED: "interrupted",
}

_OF_FAILURES: dict[str, ExitCode] = {
    FailureKind.INVALID_INPUT: ExitCode.USAGE,
    FailureKind.PRECHECK_FAILED: ExitCode.PRECHECK,
    FailureKind.VERIFICATION_FAILED: ExitCode.VERIFICATION,
    FailureKind.CONFLICT: ExitCode.CONFLICT,
    FailureKind.CONTENTION: ExitCode.CONFLICT,
    FailureKind.NOT_LEADER: ExitCode.CONFLICT,
    FailureKind.UNREACHABLE: ExitCode.UNREACHABLE,
    FailureKind.REFUSED: ExitCode.REFUSED,
}


class CommandFailed(Exception):
    """An expected failure of a command: printed as one line, without a traceback.

    Attributes:
        code: exit code of the process.
        cause: what is wrong.
        cure: what to do about it; empty if nothing helps.
    """

    def __init__(self, code: ExitCode, cause: str, cure: str = "") -> None:
        super().__init__(cause)
        # A cause often ends with a sentence of another program.
        self.code, self.cause, self.cure = code, f"{cause.rstrip('. ')}.", cure

    def __str__(self) -> str:
        return f"error: {self.cause}" + (f" cure: {self.cure}" if self.cure else "")


def code_of_failure(kind: str | None) -> ExitCode:
    """Return the exit code for the type of a migration's failure."""
    return _OF_FAILURES.get(kind or "", ExitCode.FAILED)


def table() -> str:
    """Return all exit codes in one line, for the help."""
    return " · ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items())


def report(error: CommandFailed) -> ExitCode:
    """Print the error on standard error and return its exit code."""
    print(printable(str(error)), file=sys.stderr, flush=True)
    return error.code


def leave(code: int) -> NoReturn:
    """Flush all output and end the process now.

    The SDK's native threads and Spark's gateway can crash an interpreter that shuts down, which would replace the exit
    code by a signal. Nothing of ours remains to shut down here.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except CommandFailed as error:
            code = code or report(error)
        except OSError:
            continue
    os._exit(code)
