"""The operator's verbs: `rollback`, `cleanup`, `pause`, `resume` and `proceed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from temporalio.client import Client

from cli.operations import against_temporal
from cli.options import Form, Output, WorkflowId, answer
from cli.updates import send_update
from cli.view import look
from models.lifecycle.verbs import Verb, VerbRequest, VerbResponse
from process.exit_codes import CommandFailed

HELP = {
    Verb.ROLLBACK: "Undo a migration; refused behind its point of no return.",
    Verb.CLEANUP: "Clean up the old side, once a migration is committed.",
    Verb.PAUSE: "Hold a migration before the next step that is safe to wait at.",
    Verb.RESUME: "Go on after `pause`.",
    Verb.PROCEED: "Open the gate at which a migration waits.",
}


def verb_command(verb: Verb) -> Callable[..., None]:
    """The command of one verb."""

    def run(
        workflow_id: WorkflowId,
        reason: Annotated[str, typer.Option(help="Kept in the migration's notes.")] = "",
        output: Output = Form.TEXT,
    ) -> None:
        response = send_update(
            workflow_id,
            "steer",
            VerbRequest(verb=verb, reason=reason),
            VerbResponse,
            lambda error: _refused(workflow_id, verb, output, error),
        )
        listed = ", ".join(response.legal) or "none"
        answer(output, [f"{verb} accepted: {response.why}. Legal now: {listed}"], response)

    run.__doc__ = HELP[verb]
    return run


def _refused(workflow_id: str, verb: Verb, form: Form, error: CommandFailed) -> None:
    """A program that asked for JSON gets the refusal as JSON too, beside the error line."""
    if form is not Form.JSON:
        return

    async def legal(client: Client) -> tuple[Verb, ...]:
        view = await look(client, workflow_id)
        return tuple(view.status.legal_verbs) if view.status else ()

    response = VerbResponse(verb=verb, accepted=False, why=error.cause, legal=against_temporal(legal))
    answer(form, [], response)
