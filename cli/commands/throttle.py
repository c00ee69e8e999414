"""`pulsar-migrate throttle`: the speed of the bulk copy."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Form, Output, WorkflowId, answer
from cli.updates import checked, send_update
from models.lifecycle.verbs import Speed


def throttle_command(
    workflow_id: WorkflowId,
    speed: Annotated[str, typer.Argument(metavar="MB|off", help="Megabytes of values per second.")],
    output: Output = Form.TEXT,
) -> None:
    """Limit the bulk copy that runs, or lift the limit."""
    wanted = checked(Speed, {"megabytes_per_second": None if speed == "off" else speed})
    taken = send_update(workflow_id, "set_throttle", wanted, Speed)
    limit = taken.megabytes_per_second
    answer(output, [f"throttle: {limit:g} MB/s" if limit else "throttle: off"], taken)
