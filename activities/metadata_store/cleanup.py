"""Cleanup of the metadata store migration: removes the migrated tree from the source in steps."""

from __future__ import annotations

import logging
import time

from activities.lifecycle.step import step
from activities.metadata_store.census import require_unused_source
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
    # Checked before each step: a service that came back would lose the metadata that it uses.
    require_unused_source(task.input, task.access, sessions or {})
    begun = time.monotonic()
    # The deleting tasks check this claim, so those of an earlier attempt stop.
    take_source(task)
    removed, remaining = jobs.clear(
        task.engine, task.fenced_pair, "source", limit=task.input.cleanup_limit, tag=task.tag()
    )
    _log.info("removed %d records in %.1f s", removed, time.monotonic() - begun)
    # In live mode the claim stays next to the flag COMPLETED, and names the migration that set it.
    if not remaining and task.input.mode is Mode.OFFLINE:
        release(task)
    return CleanupStep(removed=removed, remaining=remaining)


def take_source(task: MetadataStoreTask) -> None:
    """Claim the source for its cleanup.

    In live mode this migration holds it since PRE_COPY, and it names who set the flag; offline, the commit released it.
    """
    with task.source_claim() as claim:
        if task.input.mode is Mode.LIVE:
            claim.renew()
        else:
            claim.take()
