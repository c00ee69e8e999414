"""`pulsar-migrate validate` and `schema`: check plan files without servers, and print what they may contain."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from cli.documents import DocumentFault, read_file
from cli.inputs import Fault, InvalidInput, input_of, openings_of
from cli.options import Form, Output, answer
from cli.plan_files import kind_of, plan_schema
from models.lifecycle.change_windows import Opening
from models.text import printable
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import ALL

_KindOption = Annotated[
    str, typer.Option("-k", "--kind", metavar="KIND", help="Kind of plans that do not name it (default: none).")
]


class _Checked(BaseModel):
    """Result for one file; it is valid without faults.

    Attributes:
        change_windows: the next ones; empty for at any time.
    """

    file: str
    kind: str = ""
    workflow_id: str = ""
    summary: str = ""
    change_windows: tuple[Opening, ...] = ()
    faults: list[Fault] = []


def validate_command(
    files: Annotated[list[str], typer.Argument(metavar="FILES", help="Plan files; - is standard input.")],
    kind: _KindOption = "",
    output: Output = Form.TEXT,
) -> None:
    """Check plan files without Temporal and without any server."""
    results = [_check(file, kind) for file in files]
    lines = [
        line
        for result in results
        if not result.faults
        for line in (
            f"{result.file}: valid: {result.workflow_id} ({result.summary})",
            *(f"{result.file}: change window: {opening}" for opening in result.change_windows),
        )
    ]
    faults = [fault for result in results for fault in result.faults]
    if output is not Form.TEXT or lines:
        answer(output, lines, [result.model_dump(mode="json") for result in results])
    if output is Form.TEXT:
        for fault in faults:
            print(printable(str(CommandFailed(ExitCode.USAGE, fault.text, fault.cure))), file=sys.stderr, flush=True)
    raise typer.Exit(ExitCode.USAGE if faults else ExitCode.OK)


def schema_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(ALL)}.")],
) -> None:
    """Print the JSON Schema of the plan files of a kind, for editors."""
    if kind not in ALL:
        raise CommandFailed(ExitCode.USAGE, f"unknown kind {kind!r}", f"valid kinds: {', '.join(ALL)}")
    print(schema_text(plan_schema(ALL[kind])), end="")


def schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as it is published."""
    return f"{json.dumps(schema, indent=2, ensure_ascii=False)}\n"


def _check(file: str, kind: str) -> _Checked:
    try:
        document = read_file(file)
        named = kind_of(document, kind)
        input = input_of(named.input, document, {}, kind=named.name)
    except DocumentFault as fault:
        return _Checked(file=file, faults=[Fault(where=fault.where, cause=fault.cause, cure=fault.cure)])
    except InvalidInput as error:
        return _Checked(file=file, faults=[*error.faults])
    return _Checked(
        file=file,
        kind=named.name,
        workflow_id=input.workflow_id,
        summary=input.summary,
        change_windows=openings_of(input) or (),
    )
