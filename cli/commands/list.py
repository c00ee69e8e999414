"""`pulsar-migrate list`: running and ended migrations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from temporalio.client import Client

from cli.operations import against_temporal, hint_at_missing_attributes
from cli.options import Form, Output, answer, hint
from cli.rendering import ago
from cli.tables import print_table
from views.listing import Listed, list_migrations

_HEAD = ("KIND", "CLUSTER", "PHASE", "SINCE", "STATE")


def list_command(
    *,
    running: Annotated[bool, typer.Option("--running", help="Show running migrations only.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show all migrations, without a limit.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="Most migrations to show; running ones first, then the newest (default 20).")
    ] = 20,
    output: Output = Form.TEXT,
) -> None:
    """List migrations: kind, cluster, phase, and what each waits for."""
    # One more tells whether there are more.
    most = None if all_ else limit + 1

    async def work(client: Client) -> list[Listed]:
        migrations = await list_migrations(client, ended=not running, limit=most)
        if not all(migration.phase for migration in migrations):
            await hint_at_missing_attributes(client)
        return migrations

    listed = against_temporal(work)
    if not all_ and len(listed) > limit:
        listed = listed[:limit]
        hint(f"note: these are {limit}, running ones first, then the newest; --all shows the others too")
    if output is not Form.TEXT:
        answer(output, [], [migration.model_dump(mode="json") for migration in listed])
    elif listed:
        now = datetime.now(UTC)
        print_table(_HEAD, [_row(migration, now) for migration in listed])
    else:
        answer(output, ["no migration runs" if running else "there are no migrations"], [])


def _row(migration: Listed, now: datetime) -> tuple[str, ...]:
    # The rest of a usual id names cluster and topic; an id that the operator chose may be anything.
    usual = migration.workflow_id.removeprefix(f"{migration.kind}/")
    named = usual if usual.startswith(migration.cluster) else migration.cluster
    return (migration.kind, named, migration.phase or "-", ago(migration.since, now), _state(migration))


def _state(migration: Listed) -> str:
    if migration.silence:
        return f"no answer: {migration.silence}"
    if migration.waiting:
        return f"{migration.waiting.action}; waits for {migration.waiting.why}".removeprefix("; ")
    if migration.progress and not migration.closed:
        return str(migration.progress)
    if migration.failure:
        return f"{migration.outcome}: {migration.failure}"
    return str(migration.outcome or migration.execution.lower())
