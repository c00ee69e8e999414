"""`pulsar-migrate worker`, `gateway` and `codec-server`: the long-running processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import read_settings
from process.settings import settings_of


def worker_command(
    ready_file: Annotated[
        Path | None,
        typer.Option(help="File that exists while this worker alone is ready (default: none)."),
    ] = None,
) -> None:
    """Run a worker: it runs the migrations of one task queue, and serves metrics."""
    from worker.process import run_worker

    run_worker(read_settings(), ready_file=ready_file)


def gateway_command(
    ready_file: Annotated[
        Path | None,
        typer.Option(help="File that exists while this gateway alone is ready (default: none)."),
    ] = None,
) -> None:
    """Run a gateway: it serves the REST interface of the scalable topics of one cluster (PULSAR_MIGRATE_GATEWAY_…)."""
    from gateway.process import run_gateway
    from gateway.settings import PREFIX, GatewaySettings

    run_gateway(settings_of(GatewaySettings, PREFIX), ready_file=ready_file)


def codec_server_command(
    ready_file: Annotated[
        Path | None,
        typer.Option(help="File that exists while this server alone is ready (default: none)."),
    ] = None,
) -> None:
    """Run a codec server: it decrypts payloads for Temporal's Web UI and CLI (PULSAR_MIGRATE_CODEC_SERVER_…)."""
    from temporal.codec_server import PREFIX, CodecServerSettings, run_codec_server

    run_codec_server(settings_of(CodecServerSettings, PREFIX), ready_file=ready_file)
