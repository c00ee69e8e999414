"""A workflow that was changed in a way that running migrations would not survive."""

from __future__ import annotations

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
