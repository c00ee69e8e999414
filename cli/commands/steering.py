"""Commands that steer a migration: its verbs, the hold before the cut-over, its throttle and its window."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer
from temporalio.client import Client

from cli.inputs import parse_duration, read_object
from cli.operations import against_temporal, checked, query, query_line, send_update
from cli.options import Form, Output, WorkflowId, answer, hint
from models.lifecycle.auto_throttle import AutoThrottle
from models.lifecycle.preview import VerbPreview
from models.lifecycle.status import CutoverPlan, Status
from models.lifecycle.units import format_value
from models.lifecycle.verbs import (
    VERB_HELP,
    ChangeWindowsAnswer,
    ChangeWindowsChange,
    CutoverTime,
    HoldChange,
    Speed,
    Verb,
    VerbRequest,
    VerbResponse,
    WindowChange,
)
from models.lifecycle.waves import WavePolicy
from process.exit_codes import CommandFailed, ExitCode
from views.migration import read_view

_Reason = Annotated[str, typer.Option(help="Reason, kept in the migration's notes (default: none).")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would do, cost and end, and do nothing.")]


def verb_command(verb: Verb) -> Callable[..., None]:
    """Return the command of one verb."""

    def run(
        workflow_id: WorkflowId,
        reason: _Reason = "",
        dry_run: _DryRun = False,  # noqa: FBT002
        output: Output = Form.TEXT,
    ) -> None:
        _steer(workflow_id, checked(VerbRequest, {"verb": verb, "reason": reason}), output, dry_run=dry_run)

    def approve(
        workflow_id: WorkflowId,
        asked: Annotated[
            str | None,
            typer.Option(
                metavar="TIME",
                help="Time at which the request was asked for, as `status` shows it; another request is not approved.",
            ),
        ] = None,
        reason: _Reason = "",
        dry_run: _DryRun = False,  # noqa: FBT002
        output: Output = Form.TEXT,
    ) -> None:
        typed = checked(VerbRequest, {"verb": verb, "reason": reason, "asked": asked})
        request = against_temporal(lambda client: bound_approval(client, workflow_id, typed))
        _steer(workflow_id, request, output, dry_run=dry_run)

    command = approve if verb is Verb.APPROVE else run
    command.__doc__ = VERB_HELP[verb]
    return command


def _steer(workflow_id: str, request: VerbRequest, output: Form, *, dry_run: bool) -> None:
    """Send a verb, or tell what it would do."""
    if dry_run:
        hint(query_line(workflow_id, "preview", request.model_dump(mode="json")))
        preview = against_temporal(lambda client: query(client, workflow_id, "preview", VerbPreview, request))
        assert preview is not None, "the query has a result"
        answer(output, preview_lines(preview), preview)
        return
    verb = request.verb
    response = send_update(
        workflow_id,
        "steer",
        request,
        VerbResponse,
        lambda error: _refused(workflow_id, verb, output, error),
    )
    listed = ", ".join(response.legal) or "none"
    answer(output, [f"{verb} accepted: {response.why}. Legal now: {listed}"], response)


async def bound_approval(client: Client, workflow_id: str, approval: VerbRequest) -> VerbRequest:
    """Show the open request, and bind the approval to it: one that comes in between is not approved.

    An approval that names the time of another request stays as it is, so that the migration refuses it.
    """
    status = await query(client, workflow_id, "status", Status)
    if status is None or status.request is None:
        return approval
    request = status.request
    hint(f"{request.by} asks for {request.verb} since {format_value(request.since)}: {request.effect}")
    # Times are shown in whole seconds.
    if approval.asked in (None, request.since, request.since.replace(microsecond=0)):
        return approval.model_copy(update={"asked": request.since})
    return approval


def preview_lines(preview: VerbPreview) -> list[str]:
    """Return the dry run of a verb as lines."""
    lines = [f"{preview.verb} would be {'accepted' if preview.accepted else 'refused'}: {preview.effect}"]
    if preview.two_persons:
        lines.append("approval   another person must `approve` it")
    lines += [f"ends       {ended}" for ended in preview.ends]
    if preview.accepted:
        lines.append(f"undo       of what follows: {preview.undo}")
    lines += [f"window     {opening}" for opening in preview.openings]
    if preview.undo_cost:
        lines.append(f"rollback   now: {preview.undo_cost}")
    return [*lines, f"legal now  {', '.join(preview.legal) or 'none'}", "nothing was done: this is a dry run"]


def _refused(workflow_id: str, verb: Verb, form: Form, error: CommandFailed) -> None:
    """Print a refusal as a value too, next to the error line, for a program that asked for JSON or YAML."""
    if form is Form.TEXT:
        return

    async def legal(client: Client) -> tuple[Verb, ...]:
        view = await read_view(client, workflow_id)
        return tuple(view.status.legal_verbs) if view.status else ()

    response = VerbResponse(verb=verb, accepted=False, why=error.cause, legal=against_temporal(legal))
    answer(form, [], response)


def hold_command(
    workflow_id: WorkflowId,
    off: Annotated[bool, typer.Option("--off", help="Release the hold.")] = False,  # noqa: FBT002
    output: Output = Form.TEXT,
) -> None:
    """Hold a migration before its cut-over; the copy is kept up to date."""
    _answer_cutover(send_update(workflow_id, "hold_before_cutover", HoldChange(hold=not off), CutoverPlan), output)


def cutover_at_command(
    workflow_id: WorkflowId,
    at: Annotated[
        str,
        typer.Argument(
            metavar="TIME|any", help="Earliest time with its zone, e.g. 2030-01-31T02:00:00Z; any: no limit."
        ),
    ],
    output: Output = Form.TEXT,
) -> None:
    """Set the earliest time of the cut-over, or clear it."""
    wanted = checked(CutoverTime, {"at": None if at == "any" else at})
    _answer_cutover(send_update(workflow_id, "cutover_at", wanted, CutoverPlan), output)


def change_windows_command(
    workflow_id: WorkflowId,
    windows: Annotated[
        str,
        typer.Argument(metavar="TEXT|@FILE|any", help="Change windows in YAML or JSON, or a file; any: no windows."),
    ],
    reason: Annotated[str, typer.Option(help="Reason, kept in the audit trail.")],
    output: Output = Form.TEXT,
) -> None:
    """Replace the change windows of a migration, or drop them."""
    values = {} if windows == "any" else read_object(windows, "change windows")
    wanted = checked(ChangeWindowsChange, {"windows": values, "reason": reason})
    short = wanted.windows.model_dump(mode="json", exclude_defaults=True)
    change = {"windows": short, "reason": reason}
    taken = send_update(workflow_id, "set_change_windows", change, ChangeWindowsAnswer)
    lines = [f"change window: {opening}" for opening in taken.openings]
    lines = ["change windows: at any time"] if wanted.windows.always else lines
    answer(output, lines if taken.approved else ["requested; another person must send the same", *lines], taken)


def _answer_cutover(plan: CutoverPlan, form: Form) -> None:
    at = f"not before {plan.at:%Y-%m-%d %H:%M:%S %Z}" if plan.at else "as soon as it can"
    answer(form, [f"the cut-over starts {'after `proceed`, ' if plan.hold else ''}{at}"], plan)


def throttle_command(
    workflow_id: WorkflowId,
    speed: Annotated[str, typer.Argument(metavar="MB|off", help="Most megabytes of values per second; off: no limit.")],
    output: Output = Form.TEXT,
) -> None:
    """Limit the speed of the running bulk copy, or lift the limit."""
    wanted = checked(Speed, {"megabytes_per_second": None if speed == "off" else speed})
    taken = send_update(workflow_id, "set_throttle", wanted, Speed)
    limit = taken.megabytes_per_second
    answer(output, [f"throttle: {limit:g} MB/s" if limit else "throttle: off"], taken)


def auto_throttle_command(
    workflow_id: WorkflowId,
    throttle: Annotated[
        str, typer.Argument(metavar="JSON|off", help='Sources and limits, such as {"http":"http://host/"}; off: none.')
    ],
    output: Output = Form.TEXT,
) -> None:
    """Replace the automatic throttle of the running copy."""
    wanted = checked(AutoThrottle, {} if throttle == "off" else _read_json(throttle, '{"http":"http://host/may-copy"}'))
    taken = send_update(workflow_id, "set_auto_throttle", wanted, AutoThrottle)
    answer(output, [f"automatic throttle: {taken}"], taken)


def waves_command(
    workflow_id: WorkflowId,
    change: Annotated[str, typer.Argument(metavar="JSON", help='Fields to change, for example {"parallelism":4}.')],
    output: Output = Form.TEXT,
) -> None:
    """Change the waves of a running migration, from the next item on."""
    wanted = _read_json(change, '{"parallelism":4}')
    checked(WavePolicy, wanted)
    taken = send_update(workflow_id, "change_waves", wanted, WavePolicy)
    answer(output, [f"waves: {taken.model_dump_json(exclude_defaults=True)}"], taken)


def window_command(
    workflow_id: WorkflowId,
    remaining: Annotated[
        str, typer.Argument(metavar="DURATION", help="Time until the window ends, from now: 0s, 30m, 24h or PT24H.")
    ],
    output: Output = Form.TEXT,
) -> None:
    """Set the remaining time of the open window: longer, shorter or zero."""
    wanted = checked(WindowChange, {"remaining": parse_duration(remaining)})
    end = send_update(workflow_id, "change_window", wanted, datetime)
    answer(output, [f"the window ends {end:%Y-%m-%d %H:%M:%S}Z"], {"window_ends": end.isoformat()})


def _read_json(text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", f"give a JSON object: {example}") from None
