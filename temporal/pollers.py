"""Workers that poll a task queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from temporal.client import ANSWER_LIMIT

POLLS_WITHIN = timedelta(seconds=90)
"""Age of the last poll after which a worker does not count: Temporal lists it for 5 minutes, and a poll takes 60 s."""


async def pollers(client: Client, queue: str, kind: TaskQueueType.ValueType) -> list[str]:
    """Return the identities of the workers that poll a task queue for tasks of a kind.

    Raises:
        RPCError: Temporal does not answer.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        task_queue_type=kind,
    )
    described = await client.workflow_service.describe_task_queue(request, timeout=ANSWER_LIMIT)
    oldest = datetime.now(UTC) - POLLS_WITHIN
    return [each.identity for each in described.pollers if each.last_access_time.ToDatetime(tzinfo=UTC) > oldest]
