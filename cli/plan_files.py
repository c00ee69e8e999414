"""Plan files: a plan that names its kind, as the argument of a command, and JSON Schemas of plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.documents import Document, DocumentFault, read_file
from cli.inputs import Fault, InvalidInput
from cli.tables import Sections
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import ALL, Registered

SCHEMAS = "docs/schemas"
"""Folder of the published schemas, relative to the root of the repository."""


def kind_of(document: Document, kind: str = "") -> Registered:
    """Return the kind of a plan.

    Args:
        document: the plan.
        kind: its kind, where the plan does not name it.

    Raises:
        InvalidInput: it names none, or one that does not exist.
    """
    named = document.values.get("kind", kind)
    if isinstance(named, str) and named in ALL:
        return ALL[named]
    where = f"{document.name}:{document.line_of(('kind',))}"
    cause = f"there is no kind {named!r}" if named else "the plan does not name its kind"
    raise InvalidInput(
        [Fault(where=where, field="kind", cause=cause, cure=f"write `kind: ` and one of {', '.join(ALL)}")]
    )


class KindGroup(Sections):
    """Group with one command for each kind: `COMMAND FILE` runs that of the kind which the plan in the file names."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments in the line `Usage`."""
        del ctx
        return ["[OPTIONS]", "KIND|[-f] FILE", "[ARGS]..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `-f FILE` as `FILE`."""
        if args and args[0] in ("-f", "--file"):
            args = args[1:]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, and replace a file by the kind that it names."""
        file = args[0]
        if file not in self.commands and _is_file(file):
            args = [_named_kind(file), "--input", f"@{file}", *args[1:]]
        return super().resolve_command(ctx, args)


def plan_schema(kind: Registered) -> dict[str, Any]:
    """Return the JSON Schema of the plan files of a kind."""
    schema = _without_titles(kind.input.model_json_schema())
    properties: dict[str, Any] = schema["properties"]
    own = {
        "kind": {"const": kind.name, "description": "kind of the workflow."},
        "$schema": {"type": "string", "description": "address of this schema, for editors."},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{kind.workflow} ({kind.name})",
        **schema,
        "properties": {**own, **properties},
        "required": ["kind", *schema.get("required", ())],
    }


def _named_kind(file: str) -> str:
    try:
        return kind_of(read_file(file)).name
    except DocumentFault as fault:
        raise CommandFailed(ExitCode.USAGE, str(fault), fault.cure) from fault
    except InvalidInput as error:
        raise CommandFailed(ExitCode.USAGE, str(error), error.faults[0].cure) from error


def _is_file(name: str) -> bool:
    return "." in name or "/" in name or Path(name).exists()


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without the titles that pydantic makes from names; `names`: its keys are names of fields."""
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [_without_titles(item) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value, names=key in ("properties", "$defs") and not names)
        for key, value in schema.items()  # pyright: ignore[reportUnknownVariableType]
        if names or key != "title"
    }
