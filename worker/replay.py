"""Saved histories against the workflows of this version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pydantic
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from worker import migrations
from worker.exits import CommandFailed, ExitCode


def replay(files: Sequence[Path], workflows: Sequence[type] | None = None) -> dict[Path, str]:
    """Replay each history; the fault by file, empty where it replays.

    Changed arguments and timeouts of steps go unnoticed: a replay compares which steps are taken, in which order.

    Raises:
        CommandFailed: a file cannot be read, or is no history.
    """
    histories = {file: _read(file) for file in files}
    return asyncio.run(_replay(histories, list(workflows or migrations.workflows())))


async def _replay(histories: dict[Path, WorkflowHistory], workflows: list[type]) -> dict[Path, str]:
    replayer = Replayer(
        workflows=workflows,
        data_converter=pydantic_data_converter,
        workflow_failure_exception_types=[pydantic.ValidationError],
    )
    found: dict[Path, str] = {}
    for file, history in histories.items():
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        found[file] = " ".join(str(result.replay_failure).split()) if result.replay_failure else ""
    return found


def _read(file: Path) -> WorkflowHistory:
    try:
        return WorkflowHistory.from_json(file.stem, file.read_text())
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be read") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        cause = f"{file} holds no history: {' '.join(str(error).split())[:200]}."
        raise CommandFailed(ExitCode.USAGE, cause, "save one: pulsar-migrate history ID --to FILE") from error
