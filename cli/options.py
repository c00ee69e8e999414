"""Options and output that several commands share."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from datetime import timedelta
from enum import StrEnum
from io import StringIO
from typing import Annotated, Any, cast

import typer
from pydantic import BaseModel
from temporalio.service import RPCError

from models.settings import Settings
from models.text import printable, printable_json, printable_yaml, shown
from process.exit_codes import CommandFailed, ExitCode
from process.settings import PREFIX, settings_of


class Form(StrEnum):
    """Output formats of a command."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


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
    # A shell would run what the id of a stranger's workflow says, such as $(…).
    return [name for name in ids if name.startswith(incomplete) and shlex.quote(name) == name]


Output = Annotated[Form, typer.Option("-o", "--output", help="Output format: text, json or yaml (default text).")]
LONGEST_ID = 1000
"""Most characters of a workflow id, by the default of Temporal's servers."""


def check_id(workflow_id: str) -> str:
    """Return a workflow id as typed.

    Raises:
        CommandFailed: it cannot be one.
    """
    if not workflow_id.isprintable() or not 0 < len(workflow_id) <= LONGEST_ID:
        cause = f"invalid workflow id {shown(workflow_id)!r}; expected 1 to {LONGEST_ID} printable characters"
        raise CommandFailed(ExitCode.USAGE, cause, "name the id of a migration; list them: pulsar-migrate list")
    return workflow_id


WorkflowId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The migration's workflow id, e.g. metadata-store/prod.",
        autocompletion=running_ids,
        callback=check_id,
    ),
]


def answer(form: Form, lines: list[str], value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """Print an answer on standard output: its lines, or the value as JSON or YAML."""
    print("\n".join(map(printable, lines)) if form is Form.TEXT else formatted(form, value), flush=True)


def formatted(form: Form, value: BaseModel | dict[str, Any] | list[Any], *, of_stream: bool = False) -> str:
    """Return a value as JSON or YAML, without invisible characters.

    Args:
        form: one of these two.
        value: JSON values, or a model.
        of_stream: several values follow each other: one on each line, or one in each YAML document.
    """
    values: Any = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    if form is Form.JSON:
        indent, separators = (None, (",", ":")) if of_stream else (2, None)
        return printable_json(json.dumps(values, indent=indent, separators=separators, ensure_ascii=False))
    # Imported here: only this form needs it.
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def quoted(value: Any) -> Any:
        # In quotes, readers of YAML 1.1 and 1.2 agree on texts such as `no`.
        if isinstance(value, dict):
            return {name: quoted(item) for name, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [quoted(item) for item in cast("list[Any]", value)]
        return DoubleQuotedScalarString(value) if isinstance(value, str) else value

    yaml: Any = YAML()
    yaml.width, yaml.explicit_start = 10_000, of_stream
    text = StringIO()
    yaml.dump(quoted(values), text)
    return printable_yaml(text.getvalue().rstrip("\n"))


def hint(line: str) -> None:
    """Print on standard error, next to the answer; used for the equivalent `temporal` command."""
    print(printable(line), file=sys.stderr, flush=True)


def read_settings() -> Settings:
    """Return the settings of a worker's process; raise as `settings_of`."""
    return settings_of(Settings, PREFIX)
