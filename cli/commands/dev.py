"""`pulsar-migrate dev`: real servers on this machine."""

from __future__ import annotations

import typer

from worker.exit_codes import CommandFailed, ExitCode


def dev_command(context: typer.Context) -> None:
    """Run real servers on this machine, for trials and tests."""
    try:
        from deploy.devstack.cli import app as dev
    except ImportError as error:
        cause = f"the dev stack is not in this installation: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, "use a checkout of the project") from error
    program = context.parent.info_name if context.parent else None
    dev(context.args, prog_name=f"{program} dev")
