"""Migrations on a Temporal server, most often the time-skipping one, with the worker as its process sets it up."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, IndexedValueType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from models.lifecycle.names import SEARCH_ATTRIBUTES, TASK_QUEUE, observers_queue
from models.lifecycle.receipt import Receipt
from models.lifecycle.report import Report
from models.lifecycle.status import Status
from models.lifecycle.verbs import Verb, VerbRequest, VerbResponse
from pulsar_devstack.servers.stack import StackSpec
from temporal.converter import DATA_CONVERTER
from temporal.search_attributes import register_search_attributes
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.doubles import OWN_QUEUE, Doubles, Script
from tests.workflows.lifecycle.workers import workers
from tests.workflows.metadata_store import activities as metadata_store_steps
from worker import catalog as migrations
from worker.interceptor import WorkflowInterceptor
from workflows.lifecycle.continuation import HISTORY_LIMIT

IDENTITY = "worker"
"""Of client and workers; Temporal's default would name the machine in each history."""

# It only ends a test that hangs.
_LIMIT = 180.0
_ANSWER = timedelta(seconds=4)
_TASK_EVENTS = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
}
_DEADLOCK = "[TMPRL1101]"
_REPEATED = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
)


async def status_of(handle: WorkflowHandle[Any, Any]) -> Status:
    """Return the answer of a run's query.

    A lost query is sent again: the time-skipping server forgets one that arrives while a run is continued as
    the next (seen under load), which other servers do not.
    """
    while True:
        try:
            return Status.model_validate(await handle.query("status", rpc_timeout=_ANSWER))
        except RPCError as error:
            # Temporal's core reports its own timeout like a cancellation.
            if error.status not in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED):
                raise


async def until_at_rest(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a run is at rest.

    The time-skipping server keeps its clock locked if a run is terminated before that.
    """
    async with asyncio.timeout(_LIMIT):
        while True:
            if await is_at_rest(handle):
                return
            await asyncio.sleep(0.05)


async def is_at_rest(handle: WorkflowHandle[Any, Any]) -> bool:
    """Return whether a run only waits: it has no task and no activity, and starts no child."""
    before = (await handle.fetch_history()).events
    described = (await handle.describe()).raw_description
    after = (await handle.fetch_history()).events
    tasks = [event.event_type for event in after if event.event_type in _TASK_EVENTS]
    starting = [child for child in described.pending_children if not child.run_id]
    busy = len(after) > len(before) or described.pending_activities or starting
    return not busy and tasks[-1:] == [EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]


def failed_tasks(events: Iterable[HistoryEvent]) -> list[str]:
    """Return why tasks of a workflow have failed, except those that Temporal repeats without a fault of the workflow.

    These got no processor time for two seconds, which the SDK takes for a deadlock, or ended the run at the moment of
    another event, or took so long that the server could not hold the signals that came in the meantime.
    """
    failed = [
        event.workflow_task_failed_event_attributes
        for event in events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    lasting = [task for task in failed if task.cause not in _REPEATED and _DEADLOCK not in task.failure.message]
    return [f"{WorkflowTaskFailedCause.Name(task.cause)}: {task.failure.message}" for task in lasting]


@dataclass
class Run:
    """One started migration, and the script that its steps play."""

    handle: WorkflowHandle[Any, Any]
    script: Script
    client: Client

    @asynccontextmanager
    async def within(self, limit: float = _LIMIT) -> AsyncGenerator[None]:
        """Limit a wait to some seconds of real time; one that takes longer tells how far the workflow has come."""
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError as error:
            described = (await self.handle.describe()).raw_description
            events = (await self.handle.fetch_history()).events
            names = [f"{each.event_id} {EventType.Name(each.event_type)}" for each in events[-12:]]
            times = [each.event_time.ToJsonString() for each in events[-12:]]
            error.add_note(f"{self.handle.id}: " + "\n".join(map(" ".join, zip(times, names, strict=True))))
            error.add_note(str([*described.pending_activities, described.pending_workflow_task]))
            raise

    async def report(self, limit: float = _LIMIT) -> Report:
        """Wait for the end of the migration, which must come within some seconds of real time; return its report."""
        async with self.within(limit):
            return Report.model_validate(await self.handle.result())

    async def failure(self) -> BaseException:
        """Wait until the migration fails; return the cause."""
        with pytest.raises(WorkflowFailureError) as failed:
            await self.report()
        return failed.value.cause

    async def typed_failure(self) -> ApplicationError:
        """Return the failure, like `failure`, where the migration itself raises it."""
        failure = await self.failure()
        assert isinstance(failure, ApplicationError), repr(failure)
        return failure

    async def status(self) -> Status:
        """Return the answer of the query."""
        return await status_of(self.handle)

    async def until(self, condition: Callable[[Status], bool], limit: float = _LIMIT) -> Status:
        """Wait, without letting time pass, until the status fulfils a condition; the status."""
        pause = 0.02
        async with self.within(limit):
            while True:
                status = await self.status()
                if condition(status):
                    return status
                await asyncio.sleep(pause)
                # A busy machine is asked less often.
                pause = min(1.5 * pause, 0.25)

    async def signal(self, verb: Verb, *args: Any) -> None:
        """Give a verb as a signal."""
        await self.handle.signal(verb.value, args=args)

    async def steer(self, verb: Verb) -> VerbResponse:
        """Give a verb as an update."""
        return VerbResponse.model_validate(await self.update("steer", VerbRequest(verb=verb)))

    async def update(self, name: str, argument: Any) -> Any:
        """Send an update; its answer, as JSON."""
        # The SDK leaves an overload of this method without types.
        handle: Any = self.handle
        return await handle.execute_update(name, argument)

    async def refusal(self, update: str, argument: Any) -> ApplicationError:
        """Send an update that must be refused; the refusal."""
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await self.update(update, argument)
        cause = refused.value.cause
        assert isinstance(cause, ApplicationError), repr(cause)
        return cause

    async def cancel(self) -> None:
        """Cancel the workflow, and wait until it has got that."""
        await self.handle.cancel()
        requested, completed = (
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
            EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        )
        async with self.within():
            while True:
                types = [event.event_type for event in (await self.handle.fetch_history()).events]
                if requested in types and completed in types[types.index(requested) :]:
                    return
                await asyncio.sleep(0.05)

    async def running(self) -> bool:
        """Return whether the workflow has not ended."""
        return (await self.handle.describe()).status is WorkflowExecutionStatus.RUNNING

    async def ended(self, limit: float = _LIMIT) -> None:
        """Wait, without letting time pass, until it has ended."""
        async with self.within(limit):
            while True:
                if not await self.running():
                    return
                await asyncio.sleep(0.05)

    async def runs(self) -> int:
        """Return how many runs of the workflow there were so far."""
        count, run_id = 0, self.handle.first_execution_run_id
        while run_id:
            handle = self.client.get_workflow_handle(self.handle.id, run_id=run_id)
            events = (await handle.fetch_history()).events
            run_id = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            count += 1
        return count

    async def until_runs(self, count: int, limit: float = _LIMIT) -> None:
        """Wait, without letting time pass, until it has continued so often that there were `count` runs."""
        async with self.within(limit):
            while True:
                if await self.runs() >= count:
                    return
                await asyncio.sleep(0.05)

    async def events(self) -> int:
        """Return the length of its history."""
        return len((await self.handle.fetch_history()).events)


class Harness:
    """Starts migrations on one server.

    Attributes:
        clusters: names of clusters that no other migration of this server has.
        hooks: of the workers' settings.
    """

    def __init__(self, env: WorkflowEnvironment, doubles: Doubles) -> None:
        self.env = env
        self.client = env.client
        self.clusters = (f"cluster-{number}" for number in itertools.count(1))
        self.hooks = doubles.hooks
        self._doubles = doubles

    async def start(self, script: Script | None = None, *, history_limit: int = 0, **fields: Any) -> Run:
        """Start the migration of a new cluster; `fields` are added to the input as a user would type them.

        The script says which kind of migration it is, by default the metadata store's. With `history_limit` it
        continues as a new run after so many events.
        """
        script = script or metadata_store_steps.Script()
        input = {**script.input, "cluster": next(self.clusters), **fields}
        return await self.start_raw(input, script, history_limit=history_limit)

    def play(self, cluster: str, script: Script) -> None:
        """Play a script for the steps of all children that a migration starts for a cluster."""
        self._doubles.scripts[cluster] = script

    async def start_raw(self, input: dict[str, Any], script: Script, *, history_limit: int = 0) -> Run:
        """Start a migration with this JSON object as its input, right or wrong."""
        cluster, kind = str(input.get("cluster")), migrations.ALL[script.kind]
        self.play(cluster, script)
        handle = await self.client.start_workflow(
            kind.workflow,
            input,
            id=f"{kind.name}/{cluster}",
            task_queue=TASK_QUEUE,
            memo={HISTORY_LIMIT: history_limit} if history_limit else None,
        )
        return Run(handle, script, self.client)


def bound_to_plan(script: Script, cluster: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of the input of a start that is bound to the receipt of its plan."""
    kind = migrations.ALL[script.kind]
    input = kind.input.model_validate({**script.input, "cluster": cluster, **fields})
    receipt = Receipt.of(
        kind.name,
        cluster,
        planned_at=datetime.now(UTC),
        input=input.as_json(),
        facts={"release of brokers": "5.0.1"},
        counts={},
        warnings=(),
    )
    return {"cluster": cluster, **fields, "receipt": receipt.model_dump(mode="json"), "receipt_max_age": "PT1H"}


async def _register_search_attributes(client: Client) -> None:
    """Register search attributes as the worker does, except that the test server cannot list the existing ones."""
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace, search_attributes=dict.fromkeys(SEARCH_ATTRIBUTES, keyword)
        )
    )


@asynccontextmanager
async def harness(test_server: Path) -> AsyncGenerator[Harness]:
    """Start the time-skipping server and its workers."""
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=DATA_CONVERTER,
        identity=IDENTITY,
        test_server_existing_path=str(test_server),
        test_server_startup_timeout=timedelta(minutes=2),
    ) as env:
        await _register_search_attributes(env.client)
        async with with_workers(env) as ready:
            yield ready


@asynccontextmanager
async def on_dev_server(make_stack: MakeStack) -> AsyncGenerator[Harness]:
    """Start Temporal's dev server and its workers; no time is skipped."""
    stack = await asyncio.to_thread(make_stack, StackSpec(temporal=True))
    client = await Client.connect(stack.temporal_address, data_converter=DATA_CONVERTER, identity=IDENTITY)
    await register_search_attributes(client)
    async with with_workers(WorkflowEnvironment.from_client(client)) as ready:
        yield ready


@asynccontextmanager
async def with_workers(env: WorkflowEnvironment, *, attributes_missing: bool = False) -> AsyncGenerator[Harness]:
    """Run a server's workers as a process has them: for the common queue, and those of watchers and observers.

    Args:
        env: the server.
        attributes_missing: whether the workers know that the namespace lacks search attributes.
    """
    doubles = Doubles()
    common: dict[str, Any] = {
        "activities": doubles.activities(),
        "identity": IDENTITY,
        # A cancellation reaches a step with its next heartbeat; the SDK would hold those back for 8 s.
        "max_heartbeat_throttle_interval": timedelta(milliseconds=100),
    }
    shared = {**common, "task_queue": TASK_QUEUE, "workflows": migrations.workflows()}
    shared["interceptors"] = [WorkflowInterceptor(attributes_missing=attributes_missing)]
    looking = {
        **common,
        "task_queue": observers_queue(TASK_QUEUE),
        "activities": migrations.observers(common["activities"]),
    }
    async with workers(env.client, shared, {**common, "task_queue": OWN_QUEUE}, looking):
        yield Harness(env, doubles)
