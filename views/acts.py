"""Requests that clients sent to a workflow, from the events of its history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from models.text import shown
from temporal.client import ANSWER_LIMIT
from views.migration import not_found
from workflows.lifecycle.caller import named_caller

_REPORTS = "report_progress"
"""Signal of a migration's own steps."""


class Act(BaseModel):
    """A request of a client that Temporal has accepted.

    Attributes:
        what: `start`, `signal <name>`, `update <name>`, `cancel` or `terminate`.
        named_sender: the sender's own words, from a header; empty for clients that send none.
        client: identity of the client, which it chooses itself.
        principal: who the client is, as Temporal has authenticated it; empty where Temporal does not provide it.
        arguments: arguments, or the reason, as JSON.
        refused: why an update was refused; empty if it was not. Signals are refused in the notes.
        run_id: run of the workflow, whose history has the event.
        event_id: number of the event in that history.
    """

    at: datetime
    what: str
    named_sender: str
    client: str
    principal: str
    arguments: str
    refused: str = ""
    run_id: str
    event_id: int


async def read_acts(client: Client, workflow_id: str) -> list[Act]:
    """Return the accepted requests to a workflow in all its runs, the oldest first.

    Updates that a migration refuses are in the history up to a limit, and refused starts are not.

    Raises:
        CommandFailed: the workflow does not exist.
        RPCError: Temporal does not answer.
    """
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=ANSWER_LIMIT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise not_found(client, workflow_id) from error
        raise
    # A reset starts a run that no other one names as its successor.
    starts = (described.raw_info.first_run_id, described.run_id)
    runs = histories(client, workflow_id, *starts)
    acts = [act async for run_id, history in runs for act in await acts_in(client, run_id, history)]
    return sorted(acts, key=lambda act: act.at)


async def histories(
    client: Client, workflow_id: str, *starts: str, follow: bool = True
) -> AsyncIterator[tuple[str, WorkflowHistory]]:
    """Yield these runs and those before and after them, each once, with its history.

    Temporal forgets the oldest runs first, so the others are found from the newest one.

    Args:
        client: client of Temporal.
        workflow_id: of all the runs.
        starts: some of the runs.
        follow: whether to yield other runs than these.
    """
    read: set[str] = set()
    waiting = list(reversed(starts))
    while waiting:
        run_id = waiting.pop()
        if not run_id or run_id in read:
            continue
        read.add(run_id)
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        try:
            history = await handle.fetch_history(rpc_timeout=ANSWER_LIMIT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            continue
        yield run_id, history
        if follow:
            waiting += [previous_run(history), _next_run(history.events[-1])]


async def acts_in(client: Client, run_id: str, history: WorkflowHistory) -> list[Act]:
    """Return the requests that the history of a run records, in its order."""
    acts: dict[int, Act] = {}
    for event in history.events:
        if (act := await _act(client, run_id, event)) is not None:
            acts[event.event_id] = act
        completed = event.workflow_execution_update_completed_event_attributes
        if completed.outcome.HasField("failure") and (refused := acts.get(completed.accepted_event_id)):
            refused.refused = shown(completed.outcome.failure.message)
    return [*acts.values()]


def previous_run(history: WorkflowHistory) -> str:
    """Return the run that this one continues; empty for a first run."""
    return history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id


def _next_run(event: HistoryEvent) -> str:
    """Return the run that continues the one whose last event this is; empty if none does."""
    name = event.WhichOneof("attributes")
    return getattr(getattr(event, name), "new_execution_run_id", "") if name else ""


async def _act(client: Client, run_id: str, event: HistoryEvent) -> Act | None:
    """Return the request that an event records; None for events of other kinds."""
    started = event.workflow_execution_started_event_attributes
    signaled = event.workflow_execution_signaled_event_attributes
    request = event.workflow_execution_update_accepted_event_attributes.accepted_request
    cancelled = event.workflow_execution_cancel_requested_event_attributes
    terminated = event.workflow_execution_terminated_event_attributes
    headers: Mapping[str, Payload] = {}
    match event.WhichOneof("attributes"):
        case "workflow_execution_started_event_attributes" if not started.continued_execution_run_id:
            what, identity, said = "start", started.identity, ""
        case "workflow_execution_signaled_event_attributes" if signaled.signal_name != _REPORTS:
            what, identity, headers = f"signal {signaled.signal_name}", signaled.identity, signaled.header.fields
            said = await _read(client, signaled.input.payloads)
        case "workflow_execution_update_accepted_event_attributes":
            what, identity, headers = f"update {request.input.name}", request.meta.identity, request.input.header.fields
            said = await _read(client, request.input.args.payloads)
        case "workflow_execution_cancel_requested_event_attributes":
            what, identity, said = "cancel", cancelled.identity, cancelled.cause
        case "workflow_execution_terminated_event_attributes":
            what, identity, said = "terminate", terminated.identity, terminated.reason
        case _:
            return None
    principal = event.principal
    return Act(
        at=event.event_time.ToDatetime(tzinfo=UTC),
        what=shown(what),
        named_sender=named_caller(headers),
        client=shown(identity),
        principal=shown(f"{principal.type}:{principal.name}") if principal.name else "",
        arguments=shown(said),
        run_id=run_id,
        event_id=event.event_id,
    )


async def _read(client: Client, payloads: Sequence[Payload]) -> str:
    """Return arguments as JSON texts; those that this process cannot decrypt as `unreadable`."""
    try:
        values: list[Any] = await client.data_converter.decode(payloads)
    except (ValueError, RuntimeError):
        return "unreadable"
    return " ".join(json.dumps(value, ensure_ascii=False, default=str) for value in values)
