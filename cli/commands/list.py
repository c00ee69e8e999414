"""`pulsar-migrate list`: running and ended migrations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.listing import Listed, list_migrations
from cli.operations import against_temporal
from cli.options import Form, Output, answer
from cli.rendering import ago
from cli.tables import print_table

_HEAD = ("KIND", "CLUSTER", "PHASE", "SINCE", "STATE")


def list_command(
    *,
    running: Annotated[bool, typer.Option("--running", help="Only those that run.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Without a limit.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most to show; running ones first, then the newest.")] = 20,
    output: Output = Form.TEXT,
) -> None:
    """List migrations: kind, cluster, phase, and what each waits for."""
    most = None if all_ else limit
    found = against_temporal(lambda client: list_migrations(client, ended=not running, limit=most))
    if output is Form.JSON:
        answer(output, [], [one.model_dump(mode="json") for one in found])
    elif found:
        now = datetime.now(UTC)
        print_table(_HEAD, [_row(one, now) for one in found])
    else:
        answer(output, ["no migration runs" if running else "there are no migrations"], [])


def _row(one: Listed, now: datetime) -> tuple[str, ...]:
    # The rest of the id, which says of which topic of the cluster; ids of one's own say anything.
    usual = one.workflow_id.removeprefix(f"{one.kind}/")
    named = usual if usual.startswith(one.cluster) else one.cluster
    return (one.kind, named, one.phase or "-", ago(one.since, now), _state(one))


def _state(one: Listed) -> str:
    if one.silence:
        return f"no answer: {one.silence}"
    if one.waiting:
        return f"{one.waiting.action}; waits for {one.waiting.why}".removeprefix("; ")
    if one.progress and not one.closed:
        return str(one.progress)
    if one.failure:
        return f"{one.outcome}: {one.failure}"
    return str(one.outcome or one.execution.lower())
