"""`pulsar-migrate window`: the end of the open window."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from cli.inputs import parse_duration
from cli.options import Form, Output, WorkflowId, answer
from cli.updates import checked, send_update
from models.lifecycle.verbs import WindowChange


def window_command(
    workflow_id: WorkflowId,
    remaining: Annotated[str, typer.Argument(metavar="DURATION", help="Time left from now on: 0s, 30m, 24h, PT24H.")],
    output: Output = Form.TEXT,
) -> None:
    """Set the time that the open window has left: longer, shorter or zero."""
    wanted = checked(WindowChange, {"remaining": parse_duration(remaining)})
    end = send_update(workflow_id, "change_window", wanted, datetime)
    answer(output, [f"the window ends {end:%Y-%m-%d %H:%M:%S}Z"], {"window_ends": end.isoformat()})
