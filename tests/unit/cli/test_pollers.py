"""Workers of a task queue, as Temporal lists them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import Client

from cli.doctor.findings import Level
from cli.doctor.temporal import worker_finding
from temporal.pollers import POLLS_WITHIN


def _client(age: timedelta) -> Client:
    """Return a namespace whose only worker has polled so long ago."""
    poller = PollerInfo(identity="worker-1")
    poller.last_access_time.FromDatetime(datetime.now(UTC) - age)

    async def describe(*_: Any, **__: Any) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse(pollers=[poller])

    service = SimpleNamespace(describe_task_queue=describe)
    return cast("Client", SimpleNamespace(namespace="default", workflow_service=service))


@pytest.mark.parametrize(
    ("age", "level"), [(timedelta(seconds=5), Level.OK), (POLLS_WITHIN + timedelta(seconds=5), Level.WARNING)]
)
async def test_doctor_counts_no_dead_worker(age: timedelta, level: Level) -> None:
    """Temporal lists a worker for minutes after its last poll; `doctor` does not say that it serves the queue."""
    assert (await worker_finding(_client(age), "q")).level is level
