"""The operator of waves in tests: starts them on a worker of their own, watches and steers them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from models.lifecycle.change_windows import ALWAYS, ChangeWindows
from models.lifecycle.status import WaitKind
from models.lifecycle.waves import WavePolicy, WaveStatus
from tests.workflows.lifecycle.harness import Run as MigrationRun
from tests.workflows.lifecycle.wave_catalog import (
    SHOWN,
    Behaviour,
    Catalog,
    Catalogs,
    ManyTopicsInput,
    append_failed_topics,
    clean_topics,
    list_topics,
)
from tests.workflows.lifecycle.wave_migration import ManyTopics
from tests.workflows.lifecycle.wave_workflows import Batch, Many, ManyInput
from tests.workflows.lifecycle.workers import workers
from tests.workflows.metadata_store.activities import Script
from workflows.lifecycle.continuation import HISTORY_LIMIT

QUEUE = "waves"
TIMEOUT = 180.0

_names = (f"catalog-{number}" for number in itertools.count(1))


@dataclass
class Run:
    """Waves over one catalog."""

    env: WorkflowEnvironment | None
    handle: WorkflowHandle[Any, WaveStatus]
    catalog: Catalog

    async def until(self, condition: Callable[[WaveStatus], bool]) -> WaveStatus:
        """Wait until what is shown fulfils a condition; time passes where the waves wait for a time."""
        async with asyncio.timeout(TIMEOUT):
            while (status := SHOWN.get(self.handle.id)) is None or not condition(status):
                if self.env is not None and status is not None and status.hold is not None and status.hold.until:
                    await self.env.sleep(status.hold.until - await self.env.get_current_time())
                await asyncio.sleep(0.05)
        return status

    async def held(self, kind: WaitKind) -> WaveStatus:
        """Wait until something holds the waves back."""
        return await self.until(lambda status: status.hold is not None and status.hold.kind is kind)

    async def decide(self, *, proceed: bool) -> None:
        """Answer a decision."""
        await self.handle.signal("decision", proceed)

    async def revise(self, policy: WavePolicy) -> None:
        """Change the policy."""
        # The SDK leaves an overload of this method without types.
        handle: Any = self.handle
        await handle.execute_update("revise", policy)

    async def set_windows(self, windows: ChangeWindows) -> None:
        """Change the windows."""
        handle: Any = self.handle
        await handle.execute_update("set_windows", windows)

    async def result(self) -> WaveStatus:
        """Wait for the end of the waves; return their status."""
        async with asyncio.timeout(TIMEOUT):
            return await self.handle.result()


class Operator:
    """Starts waves."""

    def __init__(self, client: Client, env: WorkflowEnvironment | None, catalogs: Catalogs) -> None:
        self.client = client
        self.env = env
        self._catalogs = catalogs

    async def now(self) -> datetime:
        """Return the server's time."""
        return await self.env.get_current_time() if self.env is not None else datetime.now(UTC)

    async def start(
        self,
        items: dict[str, Behaviour],
        policy: WavePolicy,
        *,
        windows: ChangeWindows = ALWAYS,
        events: int = 10_000,
        hold: str = "",
    ) -> Run:
        """Migrate items in waves; a run continues as new after `events` events of history."""
        catalog = self._catalogs.add(next(_names), items)
        catalog.hold = hold
        return await self.again(catalog, policy, windows=windows, events=events)

    async def again(
        self,
        catalog: Catalog,
        policy: WavePolicy,
        *,
        windows: ChangeWindows = ALWAYS,
        events: int = 10_000,
    ) -> Run:
        """Start waves over a catalog, under the id that waves over it always have."""
        SHOWN.pop(f"many/{catalog.name}", None)
        handle = await self.client.start_workflow(
            "Many",
            ManyInput(catalog=catalog.name, policy=policy, windows=windows, events=events),
            id=f"many/{catalog.name}",
            task_queue=QUEUE,
            result_type=WaveStatus,
        )
        return Run(self.env, handle, catalog)

    async def start_migration(
        self, items: dict[str, Behaviour], policy: WavePolicy, *, events: int
    ) -> tuple[MigrationRun, Run]:
        """Migrate items in waves that a migration holds; a run continues as new after `events` events of history."""
        catalog = self._catalogs.add(next(_names), items)
        input = ManyTopicsInput(cluster=catalog.name, policy=policy)
        handle = await self.client.start_workflow(
            "ManyTopics", input, id=input.workflow_id, task_queue=QUEUE, memo={HISTORY_LIMIT: events}
        )
        return MigrationRun(handle, Script(), self.client), Run(self.env, handle, catalog)


@asynccontextmanager
async def wave_operator(
    client: Client, folder: Path, *, env: WorkflowEnvironment | None = None
) -> AsyncGenerator[Operator]:
    """Run a worker that carries the waves out; yield an operator. `env` skips time, where the server can."""
    catalogs = Catalogs(folder)
    activities = [
        catalogs.list_items,
        catalogs.append_failures,
        catalogs.begin_items,
        list_topics.bind(cast("Any", catalogs)),
        append_failed_topics.bind(cast("Any", catalogs)),
        clean_topics.bind(cast("Any", catalogs)),
    ]
    options: dict[str, Any] = {"task_queue": QUEUE, "workflows": [Many, ManyTopics, Batch], "activities": activities}
    async with workers(client, options):
        yield Operator(client, env, catalogs)
