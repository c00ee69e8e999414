"""`pulsar-migrate report`: the result of a migration."""

from __future__ import annotations

import typer
from temporalio.client import Client

from cli.listing import QUERY_LIMIT
from cli.operations import against_temporal
from cli.options import Form, Output, WorkflowId, answer
from cli.rendering import lines
from cli.view import code_of_report, look
from process.exit_codes import CommandFailed, ExitCode


def report_command(workflow_id: WorkflowId, output: Output = Form.TEXT) -> None:
    """Print the result of a migration that has ended; the exit code tells how."""

    async def work(client: Client) -> ExitCode:
        view = await look(client, workflow_id, with_status=False)
        if not view.ended:
            cure = f"pulsar-migrate status {workflow_id} --watch"
            raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} still runs; there is no report yet.", cure)
        if view.failure:
            # Phases and notes of a failed migration are known to its workflow only: they are shown if a worker answers.
            view = await look(client, workflow_id, limit=QUERY_LIMIT)
        if view.report:
            answer(output, lines(view), view.report)
            return code_of_report(view.report)
        answer(output, lines(view), view)
        return view.code

    raise typer.Exit(against_temporal(work))
