"""Commands as strangers type them: ids of nothing, requests that a kind does not have, terminals without a cursor."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from models.verification.input import verification_id
from process.exit_codes import CommandFailed, ExitCode
from tests.workflows.cli.test_cli import LIMIT, Shell, shell, small_worker
from views import verification
from worker.catalog import VERIFICATION

__all__ = ["shell"]


async def test_evidence_of_one_migration(shell: Shell, tmp_path: Path) -> None:
    """A migration that does not exist, or still runs, is named: evidence that was not kept is never a success."""
    folder = ("--to", str(tmp_path))
    missing = await shell("evidence", "metadata-store/none", *folder)
    assert (missing.code, "no workflow metadata-store/none" in missing.err) == (ExitCode.USAGE, True)
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("kept")
        early = await shell("evidence", workflow_id, *folder)
        assert (early.code, "kept still runs" in early.err) == (ExitCode.REFUSED, True)
        other = await shell("read-mode", workflow_id, "DUAL_READ")
        assert other.code == ExitCode.REFUSED
        assert "error: migrations of this kind do not have set_read_mode. cure: see pulsar-migrate" in other.err
        assert (await shell("proceed", workflow_id)).code == ExitCode.OK
        await shell.client.get_workflow_handle(workflow_id).result()
        async with asyncio.timeout(LIMIT):
            # Visibility lags.
            while (await shell("evidence", workflow_id, *folder)).code == ExitCode.UNREACHABLE:
                pass
        again = await shell("evidence", workflow_id, *folder)
        assert (again.code, again.out) == (ExitCode.OK, "nothing new has ended\n")


async def test_a_verification_that_no_worker_takes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does not wait forever for a worker that does not run, and says so."""
    monkeypatch.setattr(verification, "FIRST_TASK", timedelta(0))
    await shell.client.start_workflow(
        VERIFICATION.workflow, id=verification_id("metadata-store/x"), task_queue="without-workers"
    )
    with pytest.raises(CommandFailed, match="no worker on the queue without-workers takes it") as failed:
        await verification.certificate_of(shell.client, "metadata-store/x", lambda _: None)
    assert failed.value.code is ExitCode.UNREACHABLE


async def test_watch_on_a_terminal_without_a_cursor(shell: Shell) -> None:
    """A terminal that cannot replace its screen gets a line for each change, as a pipe does."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("dumb")
        terminal, end = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pulsar_migrate",
            *("status", workflow_id, "--watch"),
            stdout=end,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "TEMPORAL_ADDRESS": shell.address, "TERM": "dumb"},
        )
        os.close(end)
        try:
            shown = b""
            async with asyncio.timeout(LIMIT):
                # The first line may say that the worker has not answered yet.
                while b"trial window" not in shown:
                    shown += await asyncio.to_thread(os.read, terminal, 1 << 16)
            assert b"metadata-store/dumb | running | WORK | waits for the trial window" in shown
            assert process.returncode is None
        finally:
            process.kill()
            await process.wait()
            os.close(terminal)
