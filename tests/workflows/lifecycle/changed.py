"""A workflow that was changed in a way that running migrations would not survive."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from models.lifecycle.report import Report
    from models.metadata_store.input import MetadataStoreInput
    from models.metadata_store.results import PreCopy, Verification
    from workflows.metadata_store.workflow import MetadataStoreMigration


@workflow.defn(name="MetadataStoreMigration")
class ChangedMigration(MetadataStoreMigration):
    """Commits before it verifies."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput) -> None:
        super().__init__(input)

    @workflow.run
    async def run(self, input: MetadataStoreInput) -> Report:
        """Run the migration."""
        return await self.execute(self._migrate(input))

    async def _verify(self, pre: PreCopy) -> Verification:
        await self._complete(pre)
        return await super()._verify(pre)
