"""The command line: a thin layer over Temporal's own, which adds checked inputs, answers to verbs and exit codes."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from cli.commands.audit import audit_command
from cli.commands.doctor import doctor_app
from cli.commands.evidence import evidence_command
from cli.commands.features import features_app
from cli.commands.history import history_command, replay_command
from cli.commands.init import init_command
from cli.commands.list import list_command
from cli.commands.page import page_command
from cli.commands.plans import schema_command, validate_command
from cli.commands.processes import codec_server_command, gateway_command, worker_command
from cli.commands.start import plan_app, start_app
from cli.commands.status import report_command, status_command
from cli.commands.steering import (
    auto_throttle_command,
    change_windows_command,
    cutover_at_command,
    hold_command,
    throttle_command,
    verb_command,
    waves_command,
    window_command,
)
from cli.commands.verify import verify_command
from cli.migrations import commands_of
from cli.tables import Sections
from cli.topic_controller import topic_app
from models.lifecycle.verbs import Verb
from process.exit_codes import CommandFailed, ExitCode, leave, report, table
from process.streams import open_streams
from worker.catalog import KINDS

NAME = "pulsar-migrate"

_MIGRATIONS, _STEERING, _TOPICS, _PROCESSES = "Migrations", "Steering", "Topics that scale", "Running it"

app = typer.Typer(
    name=NAME,
    cls=Sections,
    help="Durable migrations for Apache Pulsar, as a Temporal application.",
    epilog=f"Exit codes: {table()}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(plan_app(), name="plan", rich_help_panel=_MIGRATIONS)
app.add_typer(start_app(), name="start", rich_help_panel=_MIGRATIONS)
for _name, _command in {
    "init": init_command,
    "validate": validate_command,
    "schema": schema_command,
    "list": list_command,
    "status": status_command,
    "report": report_command,
    "audit": audit_command,
    "verify": verify_command,
    "evidence": evidence_command,
    "history": history_command,
    "replay": replay_command,
}.items():
    app.command(_name, rich_help_panel=_MIGRATIONS)(_command)
for _name, _command in {
    **{verb.value: verb_command(verb) for verb in Verb},
    "hold": hold_command,
    "cutover-at": cutover_at_command,
    "change-windows": change_windows_command,
    "throttle": throttle_command,
    "auto-throttle": auto_throttle_command,
    "waves": waves_command,
    "window": window_command,
}.items():
    app.command(_name, rich_help_panel=_STEERING)(_command)
for _kind in KINDS.values():
    for _name, _command in commands_of(_kind).items():
        app.command(_name, rich_help_panel=f"Steering a {_kind.name}")(_command)
app.command("worker", rich_help_panel=_PROCESSES)(worker_command)
app.command("page", rich_help_panel=_PROCESSES)(page_command)
app.command("gateway", rich_help_panel=_PROCESSES)(gateway_command)
app.command("codec-server", rich_help_panel=_PROCESSES)(codec_server_command)
app.add_typer(doctor_app(), name="doctor", rich_help_panel=_PROCESSES)
app.add_typer(features_app(), name="features", rich_help_panel=_PROCESSES)
app.add_typer(topic_app(), name="topic-controller", rich_help_panel=_TOPICS)
# Commands of other installed distributions; each takes its `typer.Context` and parses the remaining arguments itself.
for _point in entry_points(group="pulsar_migrate.commands"):
    app.command(
        _point.name,
        rich_help_panel=_PROCESSES,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_point.load())


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(NAME, version(NAME))
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options of the program itself."""


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    open_streams()
    leave(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        app(arguments, prog_name=NAME)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.UNEXPECTED
    except CommandFailed as error:
        return report(error)
    except Exception:  # noqa: BLE001 - the last place that can report it
        traceback.print_exc()
        return ExitCode.UNEXPECTED
    return ExitCode.OK


if __name__ == "__main__":
    main()
