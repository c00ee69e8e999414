"""Options and output that several commands share."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import pydantic
import typer
from pydantic import BaseModel
from pydantic_settings import BaseSettings
from temporalio.service import RPCError

from models.settings import Settings
from models.text import printable, printable_json
from process.exit_codes import CommandFailed, ExitCode

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


class Form(StrEnum):
    """Output formats of a command."""

    TEXT = "text"
    JSON = "json"


COMPLETION_TIMEOUT = timedelta(seconds=2)
"""Longest time that a shell may wait for a completion."""

_MOST_COMPLETIONS = 50
_PREFIX = "PULSAR_MIGRATE_"
_READ_ELSEWHERE = ("PULSAR_MIGRATE_GATEWAY_", "PULSAR_MIGRATE_CREDENTIALS__", "PULSAR_MIGRATE_IMAGE_")
"""Prefixes of variables that other settings, or their own check, read."""
_NO_SETTINGS = frozenset(f"{_PREFIX}{name}" for name in ("LOG", "CLUSTER", "CACHE", "STACK", "PULSAR", "BLUE"))
"""Variables of the log, the commands, the development servers and their tests."""


def running_ids(incomplete: str) -> list[str]:
    """Return the ids of running migrations that start as typed; none if Temporal does not answer at once."""
    # Imported here: the shell's own start-up loads this module too.
    from cli.view import RUNNING, list_filter
    from temporal.client import connect

    async def work() -> list[str]:
        async with asyncio.timeout(COMPLETION_TIMEOUT.total_seconds()):
            running = (await connect()).list_workflows(list_filter(RUNNING), limit=_MOST_COMPLETIONS)
            return [workflow.id async for workflow in running]

    try:
        ids = asyncio.run(work())
    except (CommandFailed, RPCError, TimeoutError):
        return []
    return [workflow_id for workflow_id in ids if workflow_id.startswith(incomplete)]


Output = Annotated[Form, typer.Option("-o", "--output", help="Output format: text or json (default text).")]
WorkflowId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The migration's workflow id, e.g. metadata-store/prod.", autocompletion=running_ids
    ),
]


def answer(form: Form, lines: list[str], value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """Print an answer on standard output: its lines, or the value as JSON."""
    if form is Form.TEXT:
        print(*map(printable, lines), sep="\n", flush=True)
    elif isinstance(value, BaseModel):
        print(printable_json(value.model_dump_json(indent=2)), flush=True)
    else:
        print(printable_json(json.dumps(value, indent=2, ensure_ascii=False)), flush=True)


def hint(line: str) -> None:
    """Print on standard error, next to the answer; used for the equivalent `temporal` command."""
    print(printable(line), file=sys.stderr, flush=True)


def read_settings() -> Settings:
    """Return the settings of a worker's process; raise as `settings_of`."""
    return settings_of(Settings, _PREFIX)


def settings_of(kind: type[SettingsT], prefix: str) -> SettingsT:
    """Return the settings of this process.

    Args:
        kind: class of the settings.
        prefix: prefix of their environment variables.

    Raises:
        CommandFailed: a variable is wrong or unknown; the message names it.
    """
    _require_known(kind, prefix)
    try:
        return kind()
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        if not fault["loc"]:
            # Settings that contradict each other.
            cause = f"{prefix}*: {fault['msg'].removeprefix('Value error, ')}."
            raise CommandFailed(ExitCode.USAGE, cause, "correct these settings") from error
        name = "__".join(map(str, fault["loc"])).upper()
        # A field with a variable name of its own is named by that.
        name = name if name.startswith("PULSAR_MIGRATE_") else f"{prefix}{name}"
        cause = f"{name}: {fault['msg'].removeprefix('Value error, ')}."
        raise CommandFailed(ExitCode.USAGE, cause, f"correct {name}") from error
    except ValueError as error:
        # pydantic-settings reports JSON that it cannot read this way; the message names the field only.
        cause = f"{error} in the environment (prefix {prefix})."
        raise CommandFailed(ExitCode.USAGE, cause, "write this variable as JSON") from error


def _require_known(kind: type[BaseSettings], prefix: str) -> None:
    """Raise CommandFailed for a variable that no settings have: a misspelled TLS setting would be no TLS."""
    fields = {f"{prefix}{name}".upper() for name in kind.model_fields}
    others = tuple(other for other in _READ_ELSEWHERE if other != prefix)
    for variable in sorted(os.environ):
        if not variable.startswith(prefix) or variable.startswith(others) or variable in fields | _NO_SETTINGS:
            continue
        near = difflib.get_close_matches(variable, fields, n=1, cutoff=0.8)
        cure = f"correct it; a setting is named {near[0]}" if near else "correct it, or unset it"
        raise CommandFailed(ExitCode.USAGE, f"{variable} is not a setting.", cure)
