"""Options and output that several commands share."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from temporalio.service import RPCError

from models.settings import Settings
from models.text import printable, printable_json
from process.exit_codes import CommandFailed
from process.settings import PREFIX, settings_of


class Form(StrEnum):
    """Output formats of a command."""

    TEXT = "text"
    JSON = "json"


COMPLETION_TIMEOUT = timedelta(seconds=2)
"""Longest time that a shell may wait for a completion."""

_MOST_COMPLETIONS = 50


def running_ids(incomplete: str) -> list[str]:
    """Return the ids of running migrations that start as typed; none if Temporal does not answer at once."""
    # Imported here: the shell's own start-up loads this module too.
    from temporal.client import connect
    from views.migration import RUNNING, list_filter

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
    return settings_of(Settings, PREFIX)
