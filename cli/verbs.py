"""The commands that give a running migration a word: the verbs, `throttle` and `window`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeVar

import pydantic
import typer
from pydantic import BaseModel
from temporalio.client import Client

from cli.exit_codes import CommandFailed, ExitCode
from cli.inputs import faults, parse_duration
from cli.operations import against_temporal, tell
from cli.options import Form, Output, WorkflowId, answer, hint
from cli.temporal_lines import update_line
from cli.view import look
from models.lifecycle.verbs import Speed, Verb, VerbRequest, VerbResponse, WindowChange

AnswerT = TypeVar("AnswerT")
ModelT = TypeVar("ModelT", bound=BaseModel)

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
        steering = VerbRequest(verb=verb, reason=reason)
        verdict = give(
            workflow_id, "steer", steering, VerbResponse, lambda error: _refused(workflow_id, verb, output, error)
        )
        listed = ", ".join(verdict.legal) or "none"
        answer(output, [f"{verb} accepted: {verdict.why}. Legal now: {listed}"], verdict)

    run.__doc__ = HELP[verb]
    return run


def throttle_command(
    workflow_id: WorkflowId,
    speed: Annotated[str, typer.Argument(metavar="MB|off", help="Megabytes of values per second.")],
    output: Output = Form.TEXT,
) -> None:
    """Limit the bulk copy that runs, or lift the limit."""
    wanted = checked(Speed, {"megabytes_per_second": None if speed == "off" else speed})
    taken = give(workflow_id, "set_throttle", wanted, Speed)
    answer(output, [f"throttle: {taken.megabytes_per_second or 'off'} MB/s"], taken)


def window_command(
    workflow_id: WorkflowId,
    remaining: Annotated[str, typer.Argument(metavar="DURATION", help="Time left from now on: 0s, 30m, 24h, PT24H.")],
    output: Output = Form.TEXT,
) -> None:
    """Set the time that the open window has left: longer, shorter or zero."""
    wanted = checked(WindowChange, {"remaining": parse_duration(remaining)})
    end = give(workflow_id, "change_window", wanted, datetime)
    answer(output, [f"the window ends {end:%Y-%m-%d %H:%M:%S}Z"], {"window_ends": end.isoformat()})


def give(
    workflow_id: str,
    name: str,
    argument: BaseModel,
    answer_type: type[AnswerT],
    refused: Callable[[CommandFailed], Any] | None = None,
) -> AnswerT:
    """Send an update, and print the line of Temporal's own CLI that it stands for.

    Raises:
        CommandFailed: it was refused, nobody took it, or it had no effect in time.
    """
    hint(update_line(workflow_id, name, argument.model_dump(mode="json")))
    try:
        return against_temporal(lambda client: tell(client, workflow_id, name, argument, answer_type))
    except CommandFailed as error:
        if refused and error.code is ExitCode.REFUSED:
            refused(error)
        raise


def _refused(workflow_id: str, verb: Verb, form: Form, error: CommandFailed) -> None:
    """A program that asked for JSON gets the refusal as JSON too, beside the error line."""
    if form is not Form.JSON:
        return

    async def legal(client: Client) -> tuple[Verb, ...]:
        view = await look(client, workflow_id)
        return tuple(view.status.legal_verbs) if view.status else ()

    verdict = VerbResponse(verb=verb, accepted=False, why=error.cause, legal=against_temporal(legal))
    answer(form, [], verdict)


def checked(model: type[ModelT], values: dict[str, Any]) -> ModelT:
    """The argument of an update, from what was typed.

    Raises:
        CommandFailed: a value is wrong; the message names it.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise CommandFailed(ExitCode.USAGE, f"{faults(error)}.", "correct the value") from error
