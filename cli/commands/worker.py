"""`pulsar-migrate worker`: the process that carries migrations out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import read_settings


def worker_command(
    ready_file: Annotated[Path | None, typer.Option(help="A file that exists while the worker is ready.")] = None,
) -> None:
    """Run a worker: it carries out the migrations of one task queue, and serves metrics."""
    from worker.process import run_worker

    run_worker(read_settings(), ready_file=ready_file)
