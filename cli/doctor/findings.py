"""Results of checks, and how checks are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

from process.exit_codes import CommandFailed, ExitCode

MAX_CONCURRENT_CHECKS = 8
"""Most checks that run at once."""


class Level(StrEnum):
    """Result level of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(BaseModel):
    """Result of a check.

    Attributes:
        subject: name of what was checked.
        detail: result, in one line.
        cure: what to do about it; empty if nothing.
        exit_code: exit code of a command that fails with this alone; 0 unless it failed.
    """

    subject: str
    level: Level
    detail: str
    cure: str = ""
    exit_code: ExitCode = ExitCode.OK


@dataclass(frozen=True)
class Check:
    """A check: its subject, and its function.

    `run` returns a sentence if all is well, or a finding; it raises CommandFailed if something is wrong.
    """

    subject: str
    run: Callable[[], str | Finding]


def ok(subject: str, detail: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(subject=subject, level=Level.OK, detail=detail)


def warning(subject: str, detail: str, cure: str) -> Finding:
    """Return a finding that does not stop a migration but needs attention."""
    return Finding(subject=subject, level=Level.WARNING, detail=detail, cure=cure)


def failed(subject: str, error: CommandFailed) -> Finding:
    """Return a finding that stops a migration."""
    return Finding(subject=subject, level=Level.FAILED, detail=error.cause, cure=error.cure, exit_code=error.code)


def run_check(check: Check) -> Finding:
    """Run one check; an unexpected error is a finding too, so that the other checks are reported."""
    try:
        result = check.run()
    except CommandFailed as error:
        return failed(check.subject, error)
    except Exception as error:  # noqa: BLE001 - an unexpected error must not hide the findings of other checks
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return failed(check.subject, CommandFailed(ExitCode.UNEXPECTED, cause))
    return ok(check.subject, result) if isinstance(result, str) else result


def run_checks(checks: Sequence[Check]) -> Iterator[Finding]:
    """Run checks concurrently, and yield their findings in the checks' order as soon as possible."""
    with ThreadPoolExecutor(MAX_CONCURRENT_CHECKS, thread_name_prefix="check") as pool:
        yield from pool.map(run_check, checks)


# Wrong settings come first: other results are unreliable until they are corrected.
_WORST_FIRST = (ExitCode.UNEXPECTED, ExitCode.USAGE, ExitCode.UNREACHABLE, ExitCode.CONFLICT, ExitCode.OK)


def worst(findings: Iterable[Finding]) -> ExitCode:
    """Return the exit code for all findings together."""
    codes = {finding.exit_code for finding in findings}
    return min(codes, key=_WORST_FIRST.index, default=ExitCode.OK)
