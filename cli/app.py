"""The command line: a thin layer over Temporal's own, for plans, verdicts and exit codes."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from cli import bookie_cluster as bookies
from cli import start as starting
from cli.exit_codes import CommandFailed, ExitCode, leave, report, table
from cli.options import read_settings
from cli.status import history_command, replay_command, report_command, status_command
from cli.verbs import throttle_command, verb_command, window_command
from models.lifecycle.verbs import Verb

NAME = "pulsar-migrate"

app = typer.Typer(
    name=NAME,
    help="Durable migrations for Apache Pulsar, as a Temporal application.",
    epilog=f"Exit codes: {table()}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command("worker")
def worker_command(
    ready_file: Annotated[Path | None, typer.Option(help="A file that exists while the worker is ready.")] = None,
) -> None:
    """Run a worker: it carries out the migrations of one task queue, and serves metrics."""
    from worker.process import run_worker

    run_worker(read_settings(), ready_file=ready_file)


@app.command("dev", add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def dev_command(context: typer.Context) -> None:
    """Run real servers on this machine, for trials and tests."""
    try:
        from deploy.devstack.cli import app as dev
    except ImportError as error:
        cause = f"the dev stack is not in this installation: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, "use a checkout of the project") from error
    dev(context.args, prog_name=f"{NAME} dev")


app.add_typer(starting.app, name="start")
app.command("status")(status_command)
for _verb in Verb:
    app.command(_verb.value)(verb_command(_verb))
app.command("throttle")(throttle_command)
app.command("window")(window_command)
app.command("concurrency")(bookies.concurrency_command)
app.command("read-mode")(bookies.read_mode_command)
app.command("cleanup-targets")(bookies.cleanup_targets_command)
app.command("clean-up")(bookies.clean_up_command)
app.command("close-client")(bookies.close_client_command)
app.command("report")(report_command)
app.command("history")(history_command)
app.command("replay")(replay_command)


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
