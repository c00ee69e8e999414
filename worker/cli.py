"""The command line: a thin layer over Temporal's own, for plans, verdicts and exit codes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import pydantic
import typer

from models.settings import Settings
from worker.exits import CommandFailed, ExitCode, leave, report, table

app = typer.Typer(
    name="pulsar-migrate",
    help="Durable migrations for Apache Pulsar, as a Temporal application.",
    epilog=f"Exit codes: {table()}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("worker")
def worker_command(
    ready_file: Annotated[Path | None, typer.Option(help="A file that exists while the worker is ready.")] = None,
) -> None:
    """Run a worker: it carries out the migrations of one task queue, and serves metrics."""
    from worker.process import run_worker

    run_worker(_settings(), ready_file=ready_file)


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    leave(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    try:
        app(arguments, prog_name="pulsar-migrate")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.UNEXPECTED
    except CommandFailed as error:
        return report(error)
    return ExitCode.OK


def _settings() -> Settings:
    try:
        return Settings()
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = f"PULSAR_MIGRATE_{'_'.join(map(str, first['loc'])).upper()}"
        raise CommandFailed(ExitCode.USAGE, f"{name}: {first['msg']}.", f"correct {name}") from error


if __name__ == "__main__":
    main()
