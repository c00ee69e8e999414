"""A workflow that was changed in a way that running migrations would not survive."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.report import Report
    from models.metadata_store.state import MetadataStoreStart
    from workflows.metadata_store.workflow import MetadataStoreMigration


@workflow.defn(name="MetadataStoreMigration")
class ChangedMigration(MetadataStoreMigration):
    """Commits before it verifies."""

    @workflow.init
    def __init__(self, start: MetadataStoreStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: MetadataStoreStart) -> Report[Any, Any]:
        """Run the migration."""
        return await super().run(start)

    async def _verify(self) -> None:
        await self._complete()
        await super()._verify()
