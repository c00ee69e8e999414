"""`pulsar-migrate audit`: who sent what to a workflow, from the events of its history."""

from __future__ import annotations

from cli.operations import against_temporal
from cli.options import Form, Output, WorkflowId, answer
from cli.tables import print_table
from models.lifecycle.units import format_value
from views.acts import Act, read_acts

_HEAD = ("TIME", "WHAT", "NAMED SENDER", "CLIENT", "PRINCIPAL", "ARGUMENTS", "REFUSED")


def audit_command(workflow_id: WorkflowId, output: Output = Form.TEXT) -> None:
    """List who started a workflow and who sent it verbs, as Temporal's history has it."""
    acts = against_temporal(lambda client: read_acts(client, workflow_id))
    if output is not Form.TEXT:
        answer(output, [], [act.model_dump(mode="json") for act in acts])
    else:
        print_table(_HEAD, [_row(act) for act in acts])


def _row(act: Act) -> tuple[str, ...]:
    return (
        format_value(act.at),
        act.what,
        act.named_sender or "-",
        act.client or "-",
        act.principal or "-",
        act.arguments or "-",
        act.refused or "-",
    )
