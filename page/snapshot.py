"""Snapshot of all workflows of this project in a namespace: what Temporal knows, and what the workflows answer."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from models.lifecycle.failures import NOTHING_DUE
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Progress, ProgressReport, ReadingName, Side, Status
from models.text import shown
from models.topic_controller.input import controlled_topic
from models.topic_controller.state import ControllerStatus
from temporal.client import ANSWER_LIMIT
from temporal.encryption import unreadable_because
from temporal.pollers import pollers
from views.listing import QUERY_LIMIT
from views.migration import heartbeat_of
from worker.catalog import ENTITIES, KINDS

ReadT = TypeVar("ReadT")

MAX_CONCURRENT = 16
"""Most workflows that are read at once."""

MAX_UNANSWERED = 2 * MAX_CONCURRENT
"""Workflows of a task queue that do not answer, after which the others of this queue are not asked."""

ENDED_FOR = timedelta(hours=1)
"""How long an ended migration is still reported, with its outcome."""

MAX_CHILDREN = 32
"""Most running child workflows of a migration whose steps are read."""

_QUEUE_TYPES = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}
_log = logging.getLogger(__name__)

_TYPES = {kind.workflow: kind.name for kind in [*KINDS.values(), *ENTITIES.values()]}


@dataclass(frozen=True)
class Subject:
    """The labels of a workflow.

    Attributes:
        workflow_id: its id.
        run_id: id of its first run, which continue-as-new does not change.
        kind: kind of migration, or of the controller.
        cluster: name of the Pulsar cluster.
    """

    workflow_id: str
    run_id: str
    kind: str
    cluster: str

    def labels(self) -> dict[str, str]:
        """Return the labels by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class StepReading:
    """A pending step of a workflow.

    Attributes:
        name: type of the activity.
        attempt: counts from 1.
        failure: type of the failure of the previous attempt; empty if none failed.
        report: the last heartbeat.
    """

    name: str
    attempt: int
    failure: str
    report: ProgressReport


@dataclass(frozen=True)
class RunReading:
    """A running workflow.

    Attributes:
        subject: which one.
        started: start of its first run, as far as Temporal knows.
        queue: its task queue.
        phase: value of the search attribute; empty if unknown.
        status: its answer; None if it did not answer in time, or its answer cannot be shown.
        steps: its pending steps.
        readings: what steps of its children read, summed up by name and side.
        problem: why its answer cannot be shown; empty if it can, or there is none.
    """

    subject: Subject
    started: datetime
    queue: str
    phase: str = ""
    status: Status[Any, Any] | ControllerStatus | None = None
    steps: tuple[StepReading, ...] = ()
    readings: Mapping[tuple[ReadingName, Side], int] = field(default_factory=dict[tuple[ReadingName, Side], int])
    problem: str = ""

    @property
    def progress(self) -> Progress | None:
        """The newest progress; that of the status is as old as the last signal of a step."""
        own = self.status.progress if isinstance(self.status, Status) else None
        reported = [progress for progress in (own, *(step.report.progress for step in self.steps)) if progress]
        return max(reported, key=lambda progress: progress.as_of, default=None)


@dataclass(frozen=True)
class EndReading:
    """A workflow that has ended.

    Attributes:
        subject: which one.
        ended: when.
        outcome: outcome of the report; else Temporal's word, such as `failed` or `terminated`.
        failure: type of the failure that ended it; empty for none.
        is_read: whether its result could be read.
    """

    subject: Subject
    ended: datetime
    outcome: str
    failure: str = ""
    is_read: bool = True


@dataclass(frozen=True)
class Snapshot:
    """Everything that was read at one time.

    Attributes:
        at: time of the snapshot.
        seconds: how long it took.
        running: running workflows that are not part of another one.
        ended: those that ended in the last hour.
        pollers: workers that poll, by task queue and type of task.
    """

    at: datetime
    seconds: float
    running: tuple[RunReading, ...] = ()
    ended: tuple[EndReading, ...] = ()
    pollers: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


class QueueAnswers:
    """Answers of the workflows of each task queue, within one snapshot.

    Without a worker each query takes its whole limit. After some of them the others of the queue are not sent, so that
    a snapshot of many workflows takes seconds.
    """

    def __init__(self) -> None:
        self._unanswered: Counter[str] = Counter()
        self._answered: set[str] = set()

    def silent(self, queue: str) -> bool:
        """Return whether no workflow of a queue has answered, of those that were asked."""
        return queue not in self._answered and self._unanswered[queue] >= MAX_UNANSWERED

    def note(self, queue: str, *, answered: bool) -> None:
        """Note whether a workflow of a queue has answered."""
        if answered:
            self._answered.add(queue)
        else:
            self._unanswered[queue] += 1


class SnapshotReader:
    """Reads snapshots of a namespace.

    Args:
        client: client of Temporal.
        queue: task queue whose workers are counted also while nothing runs.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._free = asyncio.Semaphore(MAX_CONCURRENT)
        #: Ends do not change, so each is read once.
        self._ends: dict[str, EndReading] = {}

    async def read(self) -> Snapshot:
        """Read a snapshot.

        Raises:
            RPCError: Temporal does not answer.
        """
        began, loop = datetime.now(UTC), asyncio.get_running_loop()
        start = loop.time()
        queues = QueueAnswers()
        listed = await self._list(f"{_FILTER} AND ExecutionStatus = 'Running'")
        closed = await self._list(
            f"{_FILTER} AND ExecutionStatus != 'Running' AND ExecutionStatus != 'ContinuedAsNew' "
            f"AND CloseTime > '{began - ENDED_FOR:%Y-%m-%dT%H:%M:%SZ}'"
        )
        running = await asyncio.gather(*(self._bounded(self._read_run(workflow, queues)) for workflow in listed))
        ended = await asyncio.gather(*(self._bounded(self._read_end(workflow)) for workflow in closed))
        self._ends = {workflow.run_id: end for workflow, end in zip(closed, ended, strict=True) if end}
        names = sorted({self._queue, *(workflow.task_queue for workflow in listed)})
        polling = {
            (queue, name): len(await pollers(self._client, queue, kind))
            for queue in names
            for name, kind in _QUEUE_TYPES.items()
        }
        return Snapshot(
            at=began,
            seconds=loop.time() - start,
            running=tuple(run for run in running if run is not None),
            ended=tuple(self._ends.values()),
            pollers=polling,
        )

    async def _list(self, query: str) -> list[WorkflowExecution]:
        listed = self._client.list_workflows(query, rpc_timeout=ANSWER_LIMIT)
        return [workflow async for workflow in listed if workflow.parent_id is None]

    async def _bounded(self, read: Awaitable[ReadT]) -> ReadT:
        async with self._free:
            return await read

    async def _read_run(self, workflow: WorkflowExecution, queues: QueueAnswers) -> RunReading | None:
        """Return a running workflow; None if it has ended since it was listed."""
        # The newest run: it may have continued as new since.
        handle = self._client.get_workflow_handle(workflow.id)
        try:
            described = await handle.describe(rpc_timeout=QUERY_LIMIT)
        except RPCError:
            return RunReading(_subject(workflow), workflow.start_time, workflow.task_queue)
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return None
        answer: type[Any] = ControllerStatus if _TYPES[workflow.workflow_type] in _CONTROLLERS else Status
        status: Status[Any, Any] | ControllerStatus | None = None
        problem, answered = "", not queues.silent(workflow.task_queue)
        try:
            if answered:
                status = await handle.query("status", result_type=answer, rpc_timeout=QUERY_LIMIT)
        except RPCError:
            answered = False
        except Exception as error:  # noqa: BLE001 - a payload codec of an operator raises what it likes
            problem = problem_of(error)
        # The worker of an answer that cannot be shown takes queries: the others of its queue are asked too.
        queues.note(workflow.task_queue, answered=answered)
        pending = described.raw_description
        steps = [await self._step(step) for step in pending.pending_activities]
        children = [child.workflow_id for child in pending.pending_children[:MAX_CHILDREN]]
        child_steps = [step for child in children for step in await self._steps_of(child)]
        phases = described.search_attributes.get("MigrationPhase", [])
        started = status.history[0].started if isinstance(status, Status) and status.history else described.start_time
        return RunReading(
            subject=_subject(described, status.cluster if isinstance(status, Status) else ""),
            started=started,
            queue=workflow.task_queue,
            phase=str(phases[0]) if phases else "",
            status=status,
            steps=tuple(steps),
            readings=sum_of_readings([*steps, *child_steps]),
            problem=problem,
        )

    async def _steps_of(self, workflow_id: str) -> list[StepReading]:
        try:
            described = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=QUERY_LIMIT)
        except RPCError:
            return []
        return [await self._step(step) for step in described.raw_description.pending_activities]

    async def _step(self, pending: PendingActivityInfo) -> StepReading:
        failure = await self._kind_of(pending.last_failure) if pending.HasField("last_failure") else ""
        report = await heartbeat_of(self._client, pending)
        # A poll that finds nothing fails by design.
        failure = "" if failure == NOTHING_DUE else failure
        return StepReading(pending.activity_type.name, pending.attempt, failure, report)

    async def _kind_of(self, failure: Failure) -> str:
        try:
            decoded = await self._client.data_converter.decode_failure(failure)
        except Exception:  # noqa: BLE001 - a payload codec of an operator raises what it likes
            # Its details cannot be read: the key is lost, or another version has written them.
            return failure.application_failure_info.type
        own = decoded.type if isinstance(decoded, ApplicationError) else None
        return own or type(decoded).__name__

    async def _read_end(self, workflow: WorkflowExecution) -> EndReading | None:
        """Return how a workflow ended; None if Temporal does not say it now, or has forgotten it."""
        previous = self._ends.get(workflow.run_id)
        # What could not be read, because a key server was away for example, is read again.
        if previous and previous.is_read:
            return previous
        outcome = (workflow.status.name if workflow.status else "unknown").lower().replace("_", " ")
        answer: type[Any] = str if _TYPES[workflow.workflow_type] in _CONTROLLERS else Report
        handle = self._client.get_workflow_handle(workflow.id, run_id=workflow.run_id, result_type=answer)
        subject, failure, cluster, is_read = workflow, "", "", True
        try:
            subject = await handle.describe(rpc_timeout=QUERY_LIMIT)
            result = await handle.result(rpc_timeout=QUERY_LIMIT)
            outcome = Outcome.DONE.value
            if isinstance(result, Report):
                outcome, cluster = result.outcome.value, result.cluster
        except WorkflowFailureError as error:
            failure = error.cause.type or "" if isinstance(error.cause, ApplicationError) else ""
        except RPCError:
            return previous
        except Exception as error:  # noqa: BLE001 - a payload codec of an operator raises what it likes
            # A report that this version or this process cannot read: Temporal's word stays.
            is_read = False
            if previous is None:
                _log.warning("the report of %s cannot be read: %s", workflow.id, problem_of(error))
        ended = workflow.close_time or datetime.now(UTC)
        return EndReading(_subject(subject, cluster), ended, outcome, failure, is_read)


_CONTROLLERS = frozenset(entity.name for entity in ENTITIES.values())
# By type: a workflow that another client has just started has no search attributes yet.
_FILTER = f"WorkflowType IN ({', '.join(repr(name) for name in _TYPES)})"


def _subject(workflow: WorkflowExecution, cluster: str = "") -> Subject:
    kind = _TYPES[workflow.workflow_type]
    if not cluster:
        controlled = controlled_topic(workflow.id)
        # An id has the cluster after the kind, unless the operator chose another one.
        cluster = controlled[0] if controlled else workflow.id.removeprefix(f"{kind}/").partition("/")[0]
    described = isinstance(workflow, WorkflowExecutionDescription)
    first = workflow.raw_description.workflow_execution_info.first_run_id if described else ""
    return Subject(workflow.id, first or workflow.run_id, kind, cluster)


def problem_of(error: Exception) -> str:
    """Return in one line why something cannot be shown."""
    return unreadable_because(error) or shown(f"{type(error).__name__}: {error}")


def sum_of_readings(steps: Iterable[StepReading]) -> dict[tuple[ReadingName, Side], int]:
    """Return the sums of what steps have read, by name and side."""
    sums: dict[tuple[ReadingName, Side], int] = {}
    for step in steps:
        for reading in step.report.readings:
            key = (reading.name, reading.side)
            sums[key] = sums.get(key, 0) + reading.value
    return sums
