"""The command line: a thin layer over Temporal's own, which adds checked inputs, answers to verbs and exit codes."""

from __future__ import annotations

import sys
import traceback

import typer

from cli.commands.dev import dev_command
from cli.commands.history import history_command
from cli.commands.replay import replay_command
from cli.commands.report import report_command
from cli.commands.start import start_app
from cli.commands.status import status_command
from cli.commands.throttle import throttle_command
from cli.commands.verbs import verb_command
from cli.commands.window import window_command
from cli.commands.worker import worker_command
from cli.migrations import commands_of
from models.lifecycle.verbs import Verb
from worker.catalog import KINDS
from worker.exit_codes import CommandFailed, ExitCode, leave, report, table

NAME = "pulsar-migrate"

app = typer.Typer(
    name=NAME,
    help="Durable migrations for Apache Pulsar, as a Temporal application.",
    epilog=f"Exit codes: {table()}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(start_app(), name="start")
app.command("status")(status_command)
for _verb in Verb:
    app.command(_verb.value)(verb_command(_verb))
app.command("throttle")(throttle_command)
app.command("window")(window_command)
app.command("report")(report_command)
app.command("history")(history_command)
app.command("replay")(replay_command)
for _kind in KINDS.values():
    for _name, _command in commands_of(_kind).items():
        app.command(_name, rich_help_panel=_kind.name)(_command)
app.command("worker")(worker_command)
app.command("dev", add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    dev_command
)


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    leave(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        app(arguments, prog_name=NAME)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.UNEXPECTED
    except CommandFailed as error:
        return report(error)
    except Exception:  # noqa: BLE001 - the last place where it can be told
        traceback.print_exc()
        return ExitCode.UNEXPECTED
    return ExitCode.OK


if __name__ == "__main__":
    main()
