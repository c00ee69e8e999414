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
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT, quiet_runtime
from temporal.converter import DATA_CONVERTER
from temporal.sandbox import WORKFLOW_RUNNER
from worker import catalog


def history_command(
    workflow_id: WorkflowId,
    to: Annotated[Path | None, typer.Option(help="The file to write; standard output by default.")] = None,
) -> None:
    """Save the history of a migration as JSON, for `replay`."""

    async def work(client: Client) -> str:
        handle = client.get_workflow_handle(workflow_id)
        return (await handle.fetch_history(rpc_timeout=ANSWER_LIMIT)).to_json()

    history = against_temporal(work)
    if to is None:
        print(history)
        return
    try:
        to.write_text(history)
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be written") from error
    print(f"wrote {to}")


_LONGEST = 500


def replay_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Histories, as `history` saves them.")],
    output: Output = Form.TEXT,
) -> None:
    """Replay saved histories with the code of this version: would it carry on those migrations?"""
    results = replay(files)
    told = [f"{file}: {fault or 'replays'}" for file, fault in results.items()]
    answer(output, told, {str(file): {"replays": not fault, "fault": fault} for file, fault in results.items()})
    raise typer.Exit(ExitCode.VERIFICATION if any(results.values()) else ExitCode.OK)


def replay(files: Sequence[Path], workflows: Sequence[type] | None = None) -> dict[Path, str]:
    """Replay each history; the fault by file, empty where it replays.

    Changed arguments and timeouts of steps go unnoticed: a replay compares which steps are taken, in which order.

    Raises:
        CommandFailed: a file cannot be read, or is no history.
    """
    histories = {file: _read(file) for file in files}
    return asyncio.run(_replay(histories, list(workflows or catalog.workflows())))


async def _replay(histories: dict[Path, WorkflowHistory], workflows: list[type]) -> dict[Path, str]:
    replayer = Replayer(
        workflows=workflows,
        workflow_runner=WORKFLOW_RUNNER,
        data_converter=DATA_CONVERTER,
        runtime=quiet_runtime(),
        # Else the SDK compiles every module that is loaded, to make an id of them.
        build_id="replay",
    )
    found: dict[Path, str] = {}
    for file, history in histories.items():
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        found[file] = " ".join(str(result.replay_failure).split())[:_LONGEST] if result.replay_failure else ""
    return found


def _read(file: Path) -> WorkflowHistory:
    try:
        history = WorkflowHistory.from_json(file.stem, file.read_text())
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", "name a file that can be read") from error
    # The SDK picks the JSON apart as it comes, and hangs in the replay of one without a first event.
    except Exception as error:
        raise _no_history(file, " ".join(str(error).split())[:200]) from error
    if not history.events or not history.events[0].HasField("workflow_execution_started_event_attributes"):
        raise _no_history(file, "it does not begin with the start of a workflow")
    # Ids of child workflows begin with that of their parent, which the file's name need not tell.
    own = history.events[0].workflow_execution_started_event_attributes.workflow_id
    return replace(history, workflow_id=own or history.workflow_id)


def _no_history(file: Path, cause: str) -> CommandFailed:
    cure = "save one: pulsar-migrate history ID --to FILE"
    return CommandFailed(ExitCode.USAGE, f"{file} holds no history: {cause}.", cure)
