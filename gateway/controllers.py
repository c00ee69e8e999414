"""Client of the workflows that control topics: it retries until the deadline, and each update is applied once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from gateway.errors import HTTPProblem, not_found, unavailable
from models.addresses import AdminUrl
from models.lifecycle.cluster import Addresses, share_servers
from models.lifecycle.failures import FailureKind
from models.segments.segment import LayoutFault
from models.store_url import StoreAddress
from models.topic_controller.input import KIND, ControllerInput, controlled_topic, controller_id, controller_prefix
from temporal.client import start_workflow

AnswerT = TypeVar("AnswerT")
ResultT = TypeVar("ResultT")

_WORKFLOW = "TopicController"
_ANSWER = timedelta(seconds=5)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# How many runs are remembered with their cluster, and how many inputs are read concurrently.
_REMEMBERED, _AT_ONCE = 10_000, 16
# Transient errors: a run continues as the next, ten updates are in flight, or servers restart.
_PASSING = frozenset(
    (
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    )
)
# The type of Temporal's failure of an update whose run ended before it was completed.
_RUN_ENDED = "AcceptedUpdateCompletedWorkflow"
_STATUS: dict[str, HTTPStatus] = {
    FailureKind.REFUSED: HTTPStatus.CONFLICT,
    FailureKind.CONFLICT: HTTPStatus.CONFLICT,
    FailureKind.CONTENTION: HTTPStatus.CONFLICT,
    FailureKind.INVALID_INPUT: HTTPStatus.PRECONDITION_FAILED,
    FailureKind.UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED,
    FailureKind.DENIED: HTTPStatus.BAD_GATEWAY,
    FailureKind.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    FailureKind.NOT_LEADER: HTTPStatus.SERVICE_UNAVAILABLE,
}
# A missing segment, and changes that these segments never allow; other changes may be possible later.
_STATUS_OF_FAULT: dict[str, HTTPStatus] = {
    LayoutFault.SEGMENT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    LayoutFault.NOT_NEIGHBOURS: HTTPStatus.PRECONDITION_FAILED,
    LayoutFault.TOO_SMALL: HTTPStatus.PRECONDITION_FAILED,
}


class UpdateRejected(Exception):
    """A controller refused an update.

    Attributes:
        reason: the controller's message.
        kind: type of the failure, most often a `FailureKind`.
        fault: a `LayoutFault` of a change that does not fit the layout; empty for another reason.
        consumers: those of the update's consumers that are refused; empty if all are.
        unsure: whether the answer to an earlier attempt was lost, so that the change may have been applied.
    """

    def __init__(self, reason: str, kind: str, *, unsure: bool, fault: str = "", consumers: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.fault = fault
        self.consumers = (*consumers,)
        self.unsure = unsure

    @property
    def refusal(self) -> HTTPProblem:
        """The gateway's answer to the client."""
        status = _STATUS_OF_FAULT.get(self.fault) or _STATUS.get(self.kind, HTTPStatus.INTERNAL_SERVER_ERROR)
        return (
            unavailable(self.reason) if status is HTTPStatus.SERVICE_UNAVAILABLE else HTTPProblem(status, self.reason)
        )


class ControllerNotFound(Exception):
    """No controller leads the topic.

    Attributes:
        unsure: whether the answer to an earlier attempt was lost, so that the change may have been applied.
    """

    def __init__(self, topic: str, *, unsure: bool) -> None:
        super().__init__(topic)
        self.unsure = unsure
        self.refusal = not_found(topic)


class ServedCluster(Addresses, Protocol):
    """The cluster whose topics a gateway serves."""

    @property
    def cluster(self) -> str:
        """`clusterName` of its brokers."""
        ...


class Controllers:
    """Calls the workflows of one cluster only.

    Args:
        client: Temporal client.
        served: the cluster.
    """

    def __init__(self, client: Client, served: ServedCluster) -> None:
        self._client = client
        self._served = served
        # Ids of runs, and whether they are of this cluster.
        self._checked: dict[str, bool] = {}

    async def start(self, input: ControllerInput, queue: str) -> WorkflowHandle[Any, Any]:
        """Start the controller of a topic that has none.

        Raises:
            HTTPProblem: it has one, or Temporal does not answer.
        """
        try:
            return await start_workflow(self._client, _WORKFLOW, input, kind=KIND, queue=queue)
        except WorkflowAlreadyStartedError:
            raise HTTPProblem(HTTPStatus.CONFLICT, f"{input.topic} exists already") from None
        except RPCError as error:
            raise _temporal_says(error) from error

    async def failure(self, handle: WorkflowHandle[Any, Any]) -> UpdateRejected:
        """Wait for the end of a controller, and return why it ended."""
        try:
            ended = await handle.result()
        except WorkflowFailureError as error:
            return _refused(error.cause, unsure=False)
        return UpdateRejected(ended, FailureKind.CONFLICT, unsure=False)

    async def update(
        self, topic: str, name: str, argument: BaseModel | None, answer: type[AnswerT], deadline: float
    ) -> AnswerT:
        """Send an update, and retry with the same id until it is answered: a run of the workflow applies it once.

        It goes to the workflow that leads the topic now and to the runs that continue it, never to a newer topic of the
        same name.

        Args:
            topic: topic of the controller.
            name: name of the update.
            argument: argument of the update; None for none.
            answer: type of the answer.
            deadline: when to give up, by the loop's clock.

        Raises:
            UpdateRejected: the controller refused the update.
            ControllerNotFound: the topic has no controller.
            HTTPProblem: there is no answer in time, or a new controller took over; the update may still be applied.
        """
        args = [] if argument is None else [argument]
        update_id, unsure, asked = str(uuid.uuid4()), False, ""

        async def send() -> AnswerT:
            nonlocal unsure, asked
            leads = (await self._require_open(topic, unsure=unsure)).raw_info.first_run_id
            if unsure and leads != asked:
                raise unavailable(
                    f"a new controller took over {topic}; check whether {name} was applied before retrying"
                )
            asked = leads
            # The SDK leaves overloads of updates partly untyped.
            handle: Any = self._client.get_workflow_handle(self._id(topic), first_execution_run_id=asked)
            try:
                return await handle.execute_update(name, args=args, id=update_id, result_type=answer)
            except WorkflowUpdateFailedError as error:
                if not (isinstance(error.cause, ApplicationError) and error.cause.type == _RUN_ENDED):
                    raise _refused(error.cause, unsure=unsure) from error
                unsure = True
                raise _Retry("the run ended before the update was completed") from error
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                unsure = True
                raise _Retry("the update was not answered in time") from error
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    unsure = True
                    raise
                # One run has ended, and the next may have begun.
                await self._require_open(topic, unsure=unsure)
                unsure = True
                raise _Retry("the run has ended") from error

        return await self._retry_until_deadline(send, f"{name} of {topic}", deadline)

    async def query(self, topic: str, name: str, answer: type[AnswerT], deadline: float) -> AnswerT | None:
        """Query the controller of a topic; return None if it has no answer. Arguments are those of `update`.

        Raises:
            HTTPProblem: there is no controller, or no answer in time.
        """
        handle = self._client.get_workflow_handle(self._id(topic))

        async def ask() -> AnswerT | None:
            try:
                await self._require_open(topic, unsure=False)
                # A workflow that has ended would still answer with its last state.
                result = await handle.query(
                    name, result_type=answer, reject_condition=QueryRejectCondition.NOT_OPEN, rpc_timeout=_ANSWER
                )
            except (ControllerNotFound, WorkflowQueryRejectedError):
                raise not_found(topic) from None
            except WorkflowQueryFailedError as error:
                raise _Retry(str(error)) from error
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise not_found(topic) from None
                raise
            return result

        return await self._retry_until_deadline(ask, f"{name} of {topic}", deadline)

    async def await_end(self, handle: WorkflowHandle[Any, Any], deadline: float) -> bool:
        """Wait until a controller has ended, which is after the answer to its update.

        Args:
            handle: handle of one of its runs.
            deadline: when to give up, by the loop's clock.

        Returns:
            Whether it has deleted its topic; False if it failed or was ended, which may be before or after that.

        Raises:
            HTTPProblem: the controller has not ended in time.
        """

        async def wait() -> bool:
            try:
                await handle.result()
            except WorkflowFailureError:
                return False
            return True

        return await self._retry_until_deadline(wait, f"the end of {handle.id}", deadline)

    async def run_of(self, topic: str, deadline: float) -> WorkflowHandle[Any, Any]:
        """Return the run that leads a topic now.

        Raises:
            ControllerNotFound: there is none.
            HTTPProblem: Temporal does not answer in time.
        """

        async def find() -> WorkflowHandle[Any, Any]:
            run = await self._require_open(topic, unsure=False)
            return self._client.get_workflow_handle(self._id(topic), run_id=run.run_id)

        return await self._retry_until_deadline(find, f"the controller of {topic}", deadline)

    async def names(self, tenant: str, namespace: str, deadline: float) -> list[str]:
        """Return the controlled topics of a namespace, sorted: `tenant/namespace/topic`."""
        # Names have no quotes; see `ControlledTopic`.
        wanted = f"{controller_prefix(self._served.cluster)}{tenant}/{namespace}/"
        query = f'WorkflowType="{_WORKFLOW}" AND ExecutionStatus="Running" AND WorkflowId STARTS_WITH "{wanted}"'

        async def listed() -> list[str]:
            running = [
                (named[1], run.id, run.run_id)
                async for run in self._client.list_workflows(query, rpc_timeout=_ANSWER)
                if (named := controlled_topic(run.id))
            ]
            slots = asyncio.Semaphore(_AT_ONCE)

            async def is_ours(workflow_id: str, run_id: str) -> bool:
                async with slots:
                    return await self._is_ours(workflow_id, run_id)

            ours = await asyncio.gather(*(is_ours(*run) for _, *run in running))
            return sorted(topic for (topic, *_), own in zip(running, ours, strict=True) if own)

        return await self._retry_until_deadline(listed, f"the list of {tenant}/{namespace}", deadline)

    async def require_temporal(self) -> None:
        """Check that Temporal answers.

        Raises:
            HTTPProblem: it does not.
        """
        try:
            if await self._client.service_client.check_health(timeout=_ANSWER):
                return
        except RPCError as error:
            raise _temporal_says(error) from error
        raise unavailable("Temporal is not ready")

    async def _require_open(self, topic: str, *, unsure: bool) -> WorkflowExecutionDescription:
        """Return the run that leads a topic."""
        handle = self._client.get_workflow_handle(self._id(topic))
        try:
            described = await handle.describe(rpc_timeout=_ANSWER)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise ControllerNotFound(topic, unsure=unsure) from None
            raise
        if described.status is not WorkflowExecutionStatus.RUNNING:
            raise ControllerNotFound(topic, unsure=unsure)
        # mutant: topic-controller/a-gateway-reaches-other-clusters
        if not await self._is_ours(described.id, described.run_id, described.raw_info.first_run_id):
            raise HTTPProblem(
                HTTPStatus.CONFLICT,
                f"the controller {described.id} has neither the metadata store nor a broker of this gateway's cluster: "
                f"clusters that share a Temporal namespace need different names, or, if {self._served.cluster} has "
                "moved, the controller, or the gateway, needs its new addresses",
            )
        return described

    def _id(self, topic: str) -> str:
        try:
            return controller_id(self._served.cluster, topic)
        except ValueError as error:
            raise HTTPProblem(HTTPStatus.PRECONDITION_FAILED, str(error)) from None

    async def _is_ours(self, workflow_id: str, run_id: str, first_run_id: str = "") -> bool:
        """Return whether a run's input names servers of the served cluster, and not of another cluster of its name."""
        if not first_run_id:
            first_run_id = run_id
        ours = self._checked.get(first_run_id)
        if ours is None:
            servers = await self._servers_of(workflow_id, run_id)
            ours = servers is not None and share_servers(servers, self._served)
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[first_run_id] = ours
        return ours

    async def _servers_of(self, workflow_id: str, run_id: str) -> _Servers | None:
        """Return the servers in the input of a run, which needs no worker; None where it has none."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            maximum_page_size=1,
        )
        response = await self._client.workflow_service.get_workflow_execution_history(request, timeout=_ANSWER)
        started = response.history.events[0].workflow_execution_started_event_attributes
        [given] = await self._client.data_converter.decode(started.input.payloads, [dict[str, Any]])
        try:
            # The input of a run that continues another one also has the state of that run.
            return _Servers.model_validate(given.get("input", given))
        except ValidationError:
            return None

    async def _retry_until_deadline(self, ask: Callable[[], Awaitable[ResultT]], what: str, deadline: float) -> ResultT:
        pause, why = _FIRST_PAUSE, "no worker is polling; start one: pulsar-migrate worker"
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    try:
                        return await ask()
                    except _Retry as error:
                        why = str(error)
                    except RPCError as error:
                        if error.status not in _PASSING:
                            raise _temporal_says(error) from error
                        why = f"Temporal: {error.message}"
                    _stop_if_due(deadline)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            except TimeoutError as error:
                raise unavailable(f"timed out waiting for {what}; it may still be applied: {why}") from error


class _Servers(BaseModel):
    """The part of a controller's input that names servers."""

    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...]


class _Retry(Exception):
    """A later attempt may succeed."""


def _stop_if_due(deadline: float) -> None:
    """Raise TimeoutError at the deadline: the SDK reports a cancellation by a deadline like a lost connection."""
    if asyncio.get_running_loop().time() >= deadline:
        raise TimeoutError
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _refused(cause: BaseException, *, unsure: bool) -> UpdateRejected:
    if isinstance(cause, ApplicationError):
        first: Any = cause.details[0] if cause.details else None
        details = cast("dict[str, Any]", first) if isinstance(first, dict) else {}
        return UpdateRejected(
            cause.message,
            cause.type or "",
            unsure=unsure,
            fault=details.get("fault", ""),
            consumers=details.get("consumers", ()),
        )
    return UpdateRejected(str(cause) or type(cause).__name__, "", unsure=unsure)


def _temporal_says(error: RPCError) -> HTTPProblem:
    if error.status in _PASSING:
        return unavailable(f"Temporal does not answer: {error.message}")
    return HTTPProblem(HTTPStatus.BAD_GATEWAY, f"Temporal refuses ({error.status.name}): {error.message}")
