"""Workflows that differ from those that were recorded: one in the order of its steps, one in its speed."""

from __future__ import annotations

import time
from typing import Any

from temporalio import workflow

from models.lifecycle.input import Continued
from models.lifecycle.report import Report
from models.metadata_store.input import MetadataStoreInput
from workflows.metadata_store.workflow import MetadataStoreMigration


@workflow.defn(name="MetadataStoreMigration")
class ChangedMigration(MetadataStoreMigration):
    """Commits before it verifies."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput | Continued) -> None:
        super().__init__(input)

    @workflow.run
    async def run(self, input: MetadataStoreInput | Continued) -> Report[Any, Any]:
        """Run the migration."""
        return await super().run(input)

    async def _verify(self) -> None:
        await self._complete()
        await super()._verify()


@workflow.defn(name="MetadataStoreMigration")
class SlowMigration(MetadataStoreMigration):
    """Takes longer for its first task than Temporal lets a worker take."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput | Continued) -> None:
        super().__init__(input)
        with workflow.unsafe.sandbox_unrestricted():
            time.sleep(2.5)

    @workflow.run
    async def run(self, input: MetadataStoreInput | Continued) -> Report[Any, Any]:
        """Run the migration."""
        return await super().run(input)
