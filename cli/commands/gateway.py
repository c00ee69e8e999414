"""`pulsar-migrate gateway`: the process that serves the REST interface of scalable topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import settings_of


def gateway_command(
    ready_file: Annotated[Path | None, typer.Option(help="A file that exists while the gateway is ready.")] = None,
) -> None:
    """Run a gateway: it serves the REST interface of the scalable topics of one cluster (PULSAR_MIGRATE_GATEWAY_…)."""
    from gateway.process import run_gateway
    from gateway.settings import PREFIX, GatewaySettings

    run_gateway(settings_of(GatewaySettings, PREFIX), ready_file=ready_file)
