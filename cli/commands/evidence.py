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
from models.text import one_line
from process.exit_codes import CommandFailed, ExitCode
from views.evidence import Evidence, keep_evidence


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
                _show(await keep_evidence(client, to, workflow_id), output)
            except RPCError as error:
                if pause is None:
                    raise
                hint(f"Temporal does not answer ({one_line(error.message)}); trying again")
            if pause is None:
                return
            await asyncio.sleep(pause.total_seconds())

    if pause is not None and pause < timedelta(seconds=1):
        raise CommandFailed(ExitCode.USAGE, f"--every {every} is less than a second.", "use a longer time")
    try:
        against_temporal(work)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a folder that can be written") from error


def _show(written: list[Evidence], form: Form) -> None:
    lines = [
        f"{each.workflow_id}: {each.folder}, sha256 {each.sha256}{f'; WRONG: {each.fault}' if each.fault else ''}"
        for each in written
    ]
    answer(form, lines or ["nothing new has ended"], [each.model_dump(mode="json") for each in written])
