"""The command `pulsar-migrate dev`, which the command line finds as an entry point of this distribution."""

from __future__ import annotations

import typer


def dev(context: typer.Context) -> None:
    """Run real servers on this machine, for trials and tests."""
    # Only where it is called: every other command starts faster without it.
    from pulsar_devstack.cli import app

    program = context.parent.info_name if context.parent else None
    app(context.args, prog_name=f"{program} dev")
