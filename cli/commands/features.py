"""`pulsar-migrate features`: list what clusters can use and what becomes of it, or read what one cluster uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.inputs import input_command
from cli.migrations import servers_of
from cli.options import Form, Output, answer, read_settings
from cli.plan_files import KindGroup
from cli.tables import table_lines
from models.coverage.results import SHOWN
from models.coverage.table import COLUMNS, Feature, column_of, coverage
from models.credentials import UnknownCredentials
from models.lifecycle.input import CoveredInput, WorkflowInput
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from worker.catalog import ALL, Registered

_HELP = "List Pulsar's features, and what each migration does with them. With an input, read which ones are in use."
_Kind = Annotated[
    str | None, typer.Option("-k", "--kind", metavar="KIND", help="Show only this kind of migration (default: all).")
]
_Objects = Annotated[
    Path | None,
    typer.Option("--objects", metavar="FILE", help="Also write all objects of each feature to this JSON file."),
]


def features_app() -> typer.Typer:
    """Return the command `features`, with a subcommand for each kind of workflow."""
    app = typer.Typer(cls=KindGroup, invoke_without_command=True, rich_markup_mode=None, help=_HELP)
    app.callback()(_list)
    for kind in ALL.values():
        text = f"Read which features a cluster uses, and which of them a {kind.workflow} moves or refuses."
        further = {"output": (Output, Form.TEXT), "objects": (_Objects, None)}
        app.command(kind.name)(input_command(kind, text, _read, further))
    return app


def _list(context: typer.Context, kind: _Kind = None, output: Output = Form.TEXT) -> None:
    if context.invoked_subcommand is not None:
        return
    if kind is not None and column_of(kind) not in COLUMNS:
        raise CommandFailed(ExitCode.USAGE, f"unknown kind {kind!r}", f"valid kinds: {', '.join(ALL)}")
    features = coverage().features
    if kind is None:
        rows = [[row.id, *(row.cell(name).outcome for name in COLUMNS), row.title] for row in features]
        head = ["feature", *COLUMNS, "what it is"]
    else:
        rows = [[row.id, row.cell(kind).outcome, row.cell(kind).text] for row in features]
        head = ["feature", "outcome", "how or why"]
    columns = COLUMNS if kind is None else (column_of(kind),)
    answer(output, table_lines([head, *rows]), [_described(feature, columns) for feature in features])


def _described(feature: Feature, columns: Sequence[str]) -> dict[str, Any]:
    cells = {name: feature.cell(name) for name in columns}
    return {
        "id": feature.id,
        "area": feature.area,
        "title": feature.title,
        "seen_by": list(feature.items),
        "not_seen_because": feature.unseen,
        "reference": feature.reference,
        "outcomes": {
            name: {"outcome": cell.outcome, "checks": list(cell.codes), "how": cell.text}
            for name, cell in cells.items()
        },
    }


def _read(kind: Registered, input: WorkflowInput, *, output: Form, objects: Path | None) -> None:
    servers = servers_of(kind, input)
    if servers is None:
        raise CommandFailed(ExitCode.USAGE, f"{kind.name} defines no servers that could be read")
    # Imported here: clients of stores take time to import.
    from activities.pulsar.coverage import survey
    from activities.pulsar.feature_census import FeatureCensus
    from clients.errors import StoreError
    from clients.pulsar.admin.access import AdminAccess
    from clients.stores import Access

    settings = read_settings()
    census = FeatureCensus(servers.cluster, limit=None)
    try:
        access = Access.from_settings(settings, servers.credentials)
        admin = AdminAccess.from_settings(settings, servers.credentials)
        survey(census, servers.metadata, access, admin, servers.selects)
    except UnknownCredentials as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "correct the input, or the worker's settings") from error
    except StoreError as error:
        raise CommandFailed(ExitCode.UNREACHABLE, str(error), "check the address and the network") from error
    accepted = input.accept if isinstance(input, CoveredInput) else ()
    rows: dict[str, dict[str, Any]] = {}
    for feature in coverage().features:
        state, why = census.state(feature)
        rows[feature.id] = {
            **_described(feature, (column_of(kind.name),)),
            "state": state,
            "why": why,
            "accepted": feature.id in accepted,
            "objects": census.objects(feature),
        }
    unknown = census.unknown()
    if objects is not None:
        write_private(objects, json.dumps({"features": rows, "unknown": unknown}, indent=2))
    answer(output, list(_lines(column_of(kind.name), rows, unknown)), {"features": rows, "unknown": unknown})


def _lines(column: str, features: dict[str, dict[str, Any]], unknown: dict[str, list[str]]) -> Iterator[str]:
    rows = [["feature", "state", "outcome", "how or why"]]
    for name, row in features.items():
        cell = row["outcomes"][column]
        state = f"{row['state']}{' (accepted)' if row['accepted'] else ''}"
        rows.append([name, state, cell["outcome"], row["why"] or cell["how"]])
    yield from table_lines(rows)
    for name, row in features.items():
        if row["objects"]:
            yield f"{name}: {_sample(row['objects'])}"
    for item, names in unknown.items():
        yield f"UNKNOWN {item}: {_sample(names)}"


def _sample(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more (--objects FILE lists all)" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
