"""`pulsar-migrate page`: the live page of one migration, or of all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import running_ids
from process.settings import settings_of


def page_command(
    workflow_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="The only migration to serve (default: all).", autocompletion=running_ids),
    ] = "",
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one (default 8091).")] = None,
    tokens_file: Annotated[
        Path | None, typer.Option(help="File with the hashes of tokens, as the gateway's (default: none).")
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="Certificate of the page (PEM; default: none).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM; default: none).")] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(help="File that exists while this page alone is ready (default: none)."),
    ] = None,
) -> None:
    """Serve the live page of a migration to browsers; it only reads (PULSAR_MIGRATE_PAGE_…)."""
    from page.process import run_page
    from page.settings import PREFIX, PageSettings

    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "tokens_file": tokens_file and str(tokens_file),
        "tls_certificate": tls_certificate and str(tls_certificate),
        "tls_key": tls_key and str(tls_key),
    }
    given = {name: value for name, value in options.items() if value is not None}
    run_page(settings_of(PageSettings, PREFIX, given), workflow_id, ready_file=ready_file)
