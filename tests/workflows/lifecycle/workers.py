"""Workers of one test, in a process in which other workers follow."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.lifecycle.change_windows import read_change_windows
from temporal.sandbox import RESTRICTIONS
from worker.interceptor import WorkflowInterceptor

RUNNER = SandboxedWorkflowRunner(restrictions=RESTRICTIONS.with_passthrough_modules("tests"))
"""As workers of the product have it; workflows of tests share catalogs with the test."""


@asynccontextmanager
async def workers(client: Client, *sets: dict[str, Any]) -> AsyncGenerator[None]:
    """Run one worker for each set of options; it drops unfinished workflows at its end."""
    usual: dict[str, Any] = {
        "workflow_runner": RUNNER,
        "interceptors": [WorkflowInterceptor(attributes_missing=False)],
    }
    async with AsyncExitStack() as stack:
        for each in sets:
            options = {**usual, **each}
            options["activities"] = [*options.get("activities", ()), read_change_windows]
            await stack.enter_async_context(Worker(client, **options))
        yield
    # A worker drops its workflows as they are, and Python ends their coroutines when it collects them: now, in this
    # thread, or at any time during another worker's workflow, which would get the commands of their `finally` clauses.
    gc.collect()
