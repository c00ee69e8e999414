"""Checks of Temporal: the server, the namespace, the search attributes, and the workers of the task queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from cli.doctor.findings import Finding, failed, ok, warning
from models.lifecycle.names import SEARCH_ATTRIBUTES
from models.lifecycle.units import format_value
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT, connect, is_silent
from temporal.pollers import pollers
from temporal.search_attributes import create_line, missing_search_attributes


def temporal_findings(queue: str) -> list[Finding]:
    """Check Temporal as the environment configures it; without a connection that is the only finding."""
    return asyncio.run(_findings(queue))


async def _findings(queue: str) -> list[Finding]:
    try:
        client = await connect()
    except CommandFailed as error:
        return [failed("Temporal", error)]
    checks: dict[str, Callable[[], Awaitable[Finding]]] = {
        "Temporal": lambda: _server(client),
        "namespace": lambda: _namespace(client),
        "search attributes": lambda: _search_attributes(client),
        "workers": lambda: worker_finding(client, queue),
    }
    return [await _guarded(subject, check) for subject, check in checks.items()]


async def _guarded(subject: str, check: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        return await check()
    except CommandFailed as error:
        return failed(subject, error)
    except RPCError as error:
        code = ExitCode.UNREACHABLE if is_silent(error) else ExitCode.USAGE
        cure = "check the server" if is_silent(error) else "check TEMPORAL_NAMESPACE and the credentials of Temporal"
        return failed(subject, CommandFailed(code, f"Temporal answers: {error.message}", cure))


async def _server(client: Client) -> Finding:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ANSWER_LIMIT)
    return ok("Temporal", f"{client.service_client.config.target_host}, server {info.server_version or 'unknown'}")


async def _namespace(client: Client) -> Finding:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    described = await client.workflow_service.describe_namespace(request, timeout=ANSWER_LIMIT)
    retention = timedelta(seconds=described.config.workflow_execution_retention_ttl.seconds)
    return ok("namespace", f"{client.namespace} keeps ended migrations for {format_value(retention)}")


async def _search_attributes(client: Client) -> Finding:
    missing = await missing_search_attributes(client)
    if missing:
        cure = (
            f"a worker with the right to add them does so when it starts; or {create_line(client.namespace, missing)}"
        )
        cause = f"{', '.join(missing)} are missing; migrations run without them, and lists show less"
        return warning("search attributes", cause, cure)
    return ok("search attributes", f"{', '.join(SEARCH_ATTRIBUTES)} are registered")


async def worker_finding(client: Client, queue: str) -> Finding:
    """Return whether workers poll a task queue for all of its tasks."""
    workflows = await pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    activities = await pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    both = sorted({*workflows} & {*activities})
    if not both:
        return warning("workers", f"no worker serves the task queue {queue}", "start one: pulsar-migrate worker")
    return ok("workers", f"the task queue {queue} is served by {', '.join(both)}")
