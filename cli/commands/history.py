"""`pulsar-migrate history`: the history of a migration, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from cli.operations import against_temporal
from cli.options import WorkflowId
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT


def history_command(
    workflow_id: WorkflowId,
    to: Annotated[Path | None, typer.Option(help="The file to write; standard output by default.")] = None,
) -> None:
    """Save the history of a migration as JSON, for `replay`."""

    async def work(client: Client) -> str:
        handle = client.get_workflow_handle(workflow_id)
        return (await handle.fetch_history(rpc_timeout=ANSWER_LIMIT)).to_json()

    history = against_temporal(work)
    if to is None:
        print(history)
        return
    try:
        to.write_text(history)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be written") from error
    print(f"wrote {to}")
