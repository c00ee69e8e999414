"""Repair of differences that a compare found: a few paths by name, many by Spark."""

from __future__ import annotations

from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.metadata_store.context import MetadataStoreTask, name_paths
from models.lifecycle.failures import FailureKind
from spark.metadata_store import jobs
from spark.metadata_store.spec import Comparison


class Rest(NamedTuple):
    """Differences that are left for the caller to repair.

    Attributes:
        paths: a few.
        highest: highest version of the records that were written.
    """

    paths: tuple[bytes, ...]
    highest: int = 0


def repair_many(task: MetadataStoreTask, comparison: Comparison) -> Rest:
    """Repair differences with Spark if there are too many to be named; return the rest, which the caller repairs.

    Only before the commit, while this attempt holds the claim of the target.

    Raises:
        StoreConflict: a newer attempt runs; this one must not write.
        StoreError: a store failed; the step can be repeated.
        ApplicationError: `VerificationFailed`, if many records still differ.
    """
    different = comparison.different
    if different.all_named:
        return Rest(different.named)
    repaired = jobs.repair(task.engine, task.fenced_pair, comparison, tag=task.tag())
    if not repaired.remaining.all_named:
        raise ApplicationError(
            f"{repaired.remaining.paths:,} records differ in the target after they were written: "
            f"{name_paths(repaired.remaining.named)}. Does something else write to the target?",
            type=FailureKind.VERIFICATION_FAILED,
            non_retryable=True,
        )
    return Rest(repaired.remaining.named, repaired.highest)
