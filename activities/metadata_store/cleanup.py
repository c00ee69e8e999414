"""Cleanup of the metadata store migration: the migrated tree is removed from the source, part by part."""

from __future__ import annotations

import logging
import time

from activities.lifecycle.step import step
from activities.metadata_store.census import require_left
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.rollback import release
from models.metadata_store.input import Mode
from models.metadata_store.results import CleanupStep
from spark.metadata_store import jobs

_log = logging.getLogger(__name__)


@step(MetadataStoreTask, reads_only=True)
def count_source(task: MetadataStoreTask) -> int:
    """Count the records that the cleanup would remove from the source."""
    survey = jobs.survey(task.engine, task.pair, tag=task.tag())
    return survey.records - survey.others


@step(MetadataStoreTask)
def clean_source(task: MetadataStoreTask, sessions: dict[str, int] | None = None) -> CleanupStep:
    """Remove a bounded part of the migrated tree from the source; the flag stays for services that come late.

    Args:
        task: the migration.
        sessions: of services in the target at the commit.

    Raises:
        ApplicationError: `SourceInUse` where a service uses the source or may use it.
    """
    # Asked before each part: a service that came back would lose the metadata that it uses.
    require_left(task.input, task.runtime.access, sessions or {})
    begun = time.monotonic()
    # The tasks that delete ask this claim, so that those of an earlier attempt stop.
    take_source(task)
    removed, remaining = jobs.clear(
        task.engine, task.fenced_pair, "source", limit=task.input.cleanup_limit, tag=task.tag()
    )
    _log.info("removed %d records in %.1f s", removed, time.monotonic() - begun)
    # Live, the claim stays next to the flag COMPLETED and says whose migration that was.
    if not remaining and task.input.mode is Mode.OFFLINE:
        release(task)
    return CleanupStep(removed=removed, remaining=remaining)


def take_source(task: MetadataStoreTask) -> None:
    """Claim the source for its cleanup.

    Live, it has been ours since PRE_COPY, and says who set the flag to COMPLETED; offline, the commit released it.
    """
    with task.source_claim() as claim:
        if task.input.mode is Mode.LIVE:
            claim.renew()
        else:
            claim.take()
