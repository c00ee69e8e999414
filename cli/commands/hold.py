"""`pulsar-migrate hold` and `cutover-at`: when the cut-over begins."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Form, Output, WorkflowId, answer
from cli.updates import checked, send_update
from models.lifecycle.status import CutoverPlan
from models.lifecycle.verbs import CutoverTime, HoldChange


def hold_command(
    workflow_id: WorkflowId,
    off: Annotated[bool, typer.Option("--off", help="Hold no longer.")] = False,  # noqa: FBT002
    output: Output = Form.TEXT,
) -> None:
    """Hold a migration before its cut-over, with the copy kept up to date."""
    _tell(send_update(workflow_id, "hold_before_cutover", HoldChange(hold=not off), CutoverPlan), output)


def cutover_at_command(
    workflow_id: WorkflowId,
    at: Annotated[str, typer.Argument(metavar="TIME|any", help="With its time zone: 2030-01-31T02:00:00Z.")],
    output: Output = Form.TEXT,
) -> None:
    """Set when the cut-over begins at the earliest, or clear that."""
    wanted = checked(CutoverTime, {"at": None if at == "any" else at})
    _tell(send_update(workflow_id, "cutover_at", wanted, CutoverPlan), output)


def _tell(plan: CutoverPlan, form: Form) -> None:
    at = f"not before {plan.at:%Y-%m-%d %H:%M:%S %Z}" if plan.at else "as soon as it can"
    answer(form, [f"the cut-over begins {'after `proceed`, ' if plan.hold else ''}{at}"], plan)
