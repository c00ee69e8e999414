"""`pulsar-migrate doctor`: check what a worker and a migration need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import typer

from cli.doctor.findings import Finding, Level, failed, ok, run_checks, worst
from cli.inputs import input_command, openings_of
from cli.migrations import Servers, servers_of
from cli.options import Form, Output, answer, read_settings
from cli.plan_files import KindGroup
from models.lifecycle.input import Accepted, CoveredInput, WorkflowInput
from models.lifecycle.names import TASK_QUEUE
from process.exit_codes import CommandFailed
from worker.catalog import ALL, Registered

_HELP = "Check everything that a worker and a migration need; read only. Run it on the worker's machine, as its user."
_COUNTED = {Level.OK: "ok", Level.WARNING: "with a warning", Level.FAILED: "failed"}
_MARKS = {Level.OK: "ok", Level.WARNING: "warning", Level.FAILED: "FAILED"}


def doctor_app() -> typer.Typer:
    """Return the command `doctor`, with a subcommand for each kind of workflow."""
    app = typer.Typer(cls=KindGroup, invoke_without_command=True, rich_markup_mode=None, help=_HELP)
    app.callback()(_check_settings)
    for kind in ALL.values():
        text = f"Check the worker's settings, and the servers of a {kind.workflow}."
        app.command(kind.name)(input_command(kind, text, _check_input, {"output": (Output, Form.TEXT)}))
    return app


def _check_settings(context: typer.Context, output: Output = Form.TEXT) -> None:
    if context.invoked_subcommand is None:
        _show(_findings(), output)


def _check_input(kind: Registered, input: WorkflowInput, *, output: Form) -> None:
    _show(_findings(input, servers_of(kind, input)), output)


def _findings(input: WorkflowInput | None = None, servers: Servers | None = None) -> Iterator[Finding]:
    # Imported here: clients of stores and of Temporal take time to import.
    from cli.doctor.process import process_checks
    from cli.doctor.servers import server_findings
    from cli.doctor.temporal import temporal_findings

    try:
        settings = read_settings()
    except CommandFailed as error:
        yield failed("settings", error)
        # Temporal has settings of its own; everything else needs ours.
        yield from temporal_findings(TASK_QUEUE)
        return
    yield ok("settings", "all PULSAR_MIGRATE_ variables can be read")
    yield from temporal_findings(settings.task_queue)
    yield from run_checks(process_checks(settings))
    if input is not None and (openings := openings_of(input)):
        yield ok("change windows", "; ".join(map(str, openings)))
    if input is not None and servers is not None:
        accepted = input.accepted if isinstance(input, CoveredInput) else Accepted()
        yield from server_findings(servers, settings, input.kind, accepted)


def _show(findings: Iterator[Finding], form: Form) -> None:
    """Print each finding as it comes, and exit with the code of the worst."""
    shown: list[Finding] = []
    for finding in findings:
        shown.append(finding)
        if form is Form.TEXT:
            cure = [f"{'':<8} cure: {finding.cure}"] if finding.cure else []
            answer(form, [f"{_MARKS[finding.level]:<8} {finding.subject}: {finding.detail}", *cure], {})
    if form is not Form.TEXT:
        answer(form, [], [finding.model_dump(mode="json") for finding in shown])
    else:
        count = Counter(finding.level for finding in shown)
        summary = ", ".join(f"{count[level]} {_COUNTED[level]}" for level in Level if count[level])
        answer(form, [f"{len(shown)} checks: {summary}"], {})
    raise typer.Exit(worst(shown))
