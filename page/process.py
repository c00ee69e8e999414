"""The page's process: start-up, serving, renewal of its certificate, shutdown."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from gateway.access.grants import Tokens
from gateway.connections import allow_files
from gateway.process import build_server, listen, renew_certificate, url_of
from page.access import Viewers
from page.app import build_app
from page.settings import PREFIX, PageSettings
from process.exit_codes import CommandFailed, ExitCode, leave
from process.followed_file import FileError
from process.lifetime import report_ready, serve_and_leave, stop_on_signals, withdraw
from process.logs import configure_logs
from temporal.client import connect, server_runtime

LONGEST_ANSWER = timedelta(seconds=60)
"""Longest time for an answer; Temporal and its workers are asked with shorter limits."""

_log = logging.getLogger(__name__)


def run_page(settings: PageSettings, only: str = "", *, ready_file: Path | None = None) -> NoReturn:
    """Serve until SIGTERM (exit code 0), SIGINT (130) or a failure, and end the process.

    Args:
        settings: of this process.
        only: workflow id of the only migration that is served, with its parts; empty for all.
        ready_file: exists while the page is ready, and holds its readiness line.

    Raises:
        CommandFailed: the log format is unknown; all later failures end the process with their exit code.
    """
    faulthandler.enable()
    configure_logs()
    asyncio.run(serve_and_leave(_serve(settings, only, ready_file), ready_file, "page"))
    leave(ExitCode.UNEXPECTED)


async def _serve(settings: PageSettings, only: str, ready_file: Path | None) -> ExitCode:
    stop = stop_on_signals()
    viewers = _viewers(settings)
    client = await connect(server_runtime(metrics_address=""))
    server = build_server(build_app(client, settings, viewers, only), settings, LONGEST_ANSWER)
    allow_files(settings.max_connections)
    listener = listen(settings, PREFIX)
    serving = asyncio.create_task(server.serve([listener]))
    renewing = asyncio.create_task(renew_certificate(server.config, settings))
    path = f"migration/{quote(only)}" if only else ""
    report_ready(f"page ready: {url_of(listener, settings)}/{path}", ready_file)
    await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
    withdraw(ready_file)
    server.should_exit = True
    await serving
    renewing.cancel()
    return stop.result() if stop.done() else ExitCode.UNEXPECTED


def _viewers(settings: PageSettings) -> Viewers:
    if not settings.tokens_file:
        _log.warning("no tokens_file is set: every client that can connect sees the migrations")
        return Viewers(None)
    try:
        return Viewers(Tokens(Path(settings.tokens_file)))
    except FileError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", f"correct the file of {PREFIX}TOKENS_FILE") from error
