"""What the commands share that send an update to a running workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel

from cli.operations import against_temporal, execute_update
from cli.options import hint
from cli.temporal_lines import update_line
from models.lifecycle.base import faults
from process.exit_codes import CommandFailed, ExitCode

AnswerT = TypeVar("AnswerT")
ModelT = TypeVar("ModelT", bound=BaseModel)


def send_update(
    workflow_id: str,
    name: str,
    argument: BaseModel | None,
    answer_type: type[AnswerT],
    refused: Callable[[CommandFailed], Any] | None = None,
    *,
    see: str = "",
) -> AnswerT:
    """Send an update, and print the line of Temporal's own CLI that it stands for.

    Args:
        workflow_id: of the workflow.
        name: of the update.
        argument: of the update; None for none.
        answer_type: of the answer.
        refused: called with a refusal before it is raised.
        see: the command that shows it; by default that of a migration.

    Raises:
        CommandFailed: it was refused, nobody took it, or it had no effect in time.
    """
    hint(update_line(workflow_id, name, *([] if argument is None else [argument.model_dump(mode="json")])))
    try:
        return against_temporal(
            lambda client: execute_update(client, workflow_id, name, argument, answer_type, see=see)
        )
    except CommandFailed as error:
        if refused and error.code is ExitCode.REFUSED:
            refused(error)
        raise


def checked(model: type[ModelT], values: dict[str, Any]) -> ModelT:
    """The argument of an update, from what was typed.

    Raises:
        CommandFailed: a value is wrong; the message names it.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise CommandFailed(ExitCode.USAGE, f"{faults(error)}.", "correct the value") from error
