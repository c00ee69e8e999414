"""What a check finds, and how checks are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

from process.exit_codes import CommandFailed, ExitCode

AT_ONCE = 8
"""Most checks that wait for servers at once."""


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(BaseModel):
    """What a check found.

    Attributes:
        subject: what was checked.
        detail: what was found, in one line.
        cure: what to do about it; empty where all is well.
        exit_code: how a command that fails with this alone would end; 0 unless it failed.
    """

    subject: str
    level: Level
    detail: str
    cure: str = ""
    exit_code: ExitCode = ExitCode.OK


@dataclass(frozen=True)
class Check:
    """A check: its subject, and what does it.

    `run` returns a sentence where all is well, or a finding; it raises CommandFailed where something is wrong.
    """

    subject: str
    run: Callable[[], str | Finding]


def ok(subject: str, detail: str) -> Finding:
    """All is well."""
    return Finding(subject=subject, level=Level.OK, detail=detail)


def warning(subject: str, detail: str, cure: str) -> Finding:
    """A migration can run, but something should be looked after."""
    return Finding(subject=subject, level=Level.WARNING, detail=detail, cure=cure)


def failed(subject: str, error: CommandFailed) -> Finding:
    """A migration could not run."""
    return Finding(subject=subject, level=Level.FAILED, detail=error.cause, cure=error.cure, exit_code=error.code)


def run_check(check: Check) -> Finding:
    """Run one check; an error of the check itself is a finding too, so that the others are told."""
    try:
        found = check.run()
    except CommandFailed as error:
        return failed(check.subject, error)
    except Exception as error:  # noqa: BLE001 - what nobody foresaw must not hide what others found
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return failed(check.subject, CommandFailed(ExitCode.UNEXPECTED, cause))
    return ok(check.subject, found) if isinstance(found, str) else found


def run_checks(checks: Sequence[Check]) -> Iterator[Finding]:
    """Run checks side by side, and give their findings in the checks' order, as soon as they are there."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="check") as pool:
        yield from pool.map(run_check, checks)


# Wrong settings come first: nothing else can be trusted before they are corrected.
_WORST_FIRST = (ExitCode.UNEXPECTED, ExitCode.USAGE, ExitCode.UNREACHABLE, ExitCode.CONFLICT, ExitCode.OK)


def worst(findings: Iterable[Finding]) -> ExitCode:
    """The exit code that stands for all findings."""
    codes = {finding.exit_code for finding in findings}
    return min(codes, key=_WORST_FIRST.index, default=ExitCode.OK)
