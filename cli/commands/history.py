"""`pulsar-migrate history` and `replay`: save the history of a migration, and replay histories with this version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from cli.operations import against_temporal
from cli.options import Form, Output, WorkflowId, answer
from models.text import shown
from process.exit_codes import CommandFailed, ExitCode
from process.files import write_private
from temporal.client import ANSWER_LIMIT, runtime_without_logs
from temporal.codec import data_converter
from temporal.sandbox import WORKFLOW_RUNNER
from worker import catalog


def history_command(
    workflow_id: WorkflowId,
    to: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
) -> None:
    """Save the history of a migration as JSON, for `replay`."""

    async def work(client: Client) -> str:
        handle = client.get_workflow_handle(workflow_id)
        return (await handle.fetch_history(rpc_timeout=ANSWER_LIMIT)).to_json()

    history = against_temporal(work)
    if to is None:
        print(history)
        return
    write_private(to, history)
    print(f"wrote {to}")


_LONGEST_FAULT = 500


def replay_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Histories, as `history` saves them.")],
    output: Output = Form.TEXT,
) -> None:
    """Replay saved histories with the code of this version, to check that it can continue those migrations."""
    results = replay(files)
    replayed = [f"{file}: {fault or 'replays'}" for file, fault in results.items()]
    answer(output, replayed, {str(file): {"replays": not fault, "fault": fault} for file, fault in results.items()})
    raise typer.Exit(ExitCode.VERIFICATION if any(results.values()) else ExitCode.OK)


def replay(files: Sequence[Path], workflows: Sequence[type] | None = None) -> dict[Path, str]:
    """Replay each history; return the fault by file, empty if there is none.

    A replay compares steps and their order only: changed arguments and timeouts of steps go unnoticed.

    Raises:
        CommandFailed: a file cannot be read, or is not a history.
    """
    histories = {file: _read(file) for file in files}
    return asyncio.run(_replay(histories, list(workflows or catalog.workflows())))


async def _replay(histories: dict[Path, WorkflowHistory], workflows: list[type]) -> dict[Path, str]:
    replayer = Replayer(
        workflows=workflows,
        workflow_runner=WORKFLOW_RUNNER,
        data_converter=data_converter(),
        runtime=runtime_without_logs(),
        # Otherwise the SDK compiles every loaded module to compute an id.
        build_id="replay",
        # Otherwise a task that takes two seconds, as on a busy machine, counts as a deadlock.
        debug_mode=True,
    )
    faults: dict[Path, str] = {}
    for file, history in histories.items():
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        faults[file] = " ".join(str(result.replay_failure).split())[:_LONGEST_FAULT] if result.replay_failure else ""
    return faults


def _read(file: Path) -> WorkflowHistory:
    try:
        history = WorkflowHistory.from_json(file.stem, file.read_text("utf-8"))
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be read") from error
    # The SDK parses the JSON without checks, and hangs in the replay of a history without a first event.
    except Exception as error:
        raise _no_history(file, shown(str(error))) from error
    if not history.events or not history.events[0].HasField("workflow_execution_started_event_attributes"):
        raise _no_history(file, "it does not start with the start of a workflow")
    # Ids of child workflows start with that of their parent, which the file's name may not have.
    own = history.events[0].workflow_execution_started_event_attributes.workflow_id
    return replace(history, workflow_id=own or history.workflow_id)


def _no_history(file: Path, cause: str) -> CommandFailed:
    cure = "save one: pulsar-migrate history ID --to FILE"
    return CommandFailed(ExitCode.USAGE, f"{file} is not a history: {cause}.", cure)
