"""`pulsar-migrate evidence`: keep what proves a migration in a folder, for longer than Temporal does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from cli.inputs import parse_duration
from cli.operations import against_temporal
from cli.options import Form, Output, answer, hint
from models.lifecycle.names import file_name
from models.text import one_line
from process.exit_codes import CommandFailed, ExitCode
from views.evidence import SUMS, Evidence, keep_evidence
from views.migration import read_view


def evidence_command(
    workflow_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="One migration (default: all that have ended).")
    ] = "",
    *,
    to: Annotated[
        Path, typer.Option(help="Folder, with one folder for each migration.", envvar="PULSAR_MIGRATE_EVIDENCE")
    ],
    every: Annotated[str, typer.Option(help="Repeat after this time, until stopped: 30s, 1m (default: once).")] = "",
    output: Output = Form.TEXT,
) -> None:
    """Keep report, audit trail, requests and histories of ended migrations in a folder, with their SHA-256."""
    pause = parse_duration(every) if every else None

    async def work(client: Client) -> None:
        while True:
            try:
                written = await keep_evidence(client, to, workflow_id)
            except RPCError as error:
                if pause is None:
                    raise
                hint(f"Temporal does not answer ({one_line(error.message)}); trying again")
            else:
                _show(written, output)
                if pause is None:
                    _require_all(written)
                    if workflow_id and not written:
                        await _require_kept(client, to, workflow_id)
                    return
            await asyncio.sleep(pause.total_seconds())

    if pause is not None and pause < timedelta(seconds=1):
        raise CommandFailed(ExitCode.USAGE, f"--every {every} is less than a second.", "use a longer time")
    against_temporal(work)


def _require_all(written: list[Evidence]) -> None:
    if missing := [each.workflow_id for each in written if not each.sha256]:
        cause = f"evidence of {len(missing)} migrations was not kept, such as {missing[0]}."
        raise CommandFailed(ExitCode.FAILED, cause, "do what the lines above say, and repeat the command")


async def _require_kept(client: Client, to: Path, workflow_id: str) -> None:
    """Check that a migration of which nothing was written now has its evidence from before."""
    view = await read_view(client, workflow_id, with_status=False)
    if not view.ended:
        cure = f"pulsar-migrate status {workflow_id} --watch"
        raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} still runs; its evidence is kept after its end.", cure)
    if not (to / file_name(workflow_id) / view.run_id / SUMS).exists():
        cause = f"{workflow_id} is not listed by Temporal yet, or it is a part of another migration."
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "repeat the command, or name that migration")


def _show(written: list[Evidence], form: Form) -> None:
    answer(
        form, [*map(_line, written)] or ["nothing new has ended"], [each.model_dump(mode="json") for each in written]
    )


def _line(evidence: Evidence) -> str:
    sums = f", sha256 {evidence.sha256}" if evidence.sha256 else ""
    forgotten = f"; Temporal has forgotten run {evidence.forgotten} and those before it" if evidence.forgotten else ""
    wrong = f"; WRONG: {evidence.fault}" if evidence.fault else ""
    return f"{evidence.workflow_id}: {evidence.folder}{sums}{forgotten}{wrong}"
