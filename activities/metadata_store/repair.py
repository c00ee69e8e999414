"""What a compare found different is brought in line: a few paths by name, and more than that by Spark."""

from __future__ import annotations

from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.metadata_store.context import MetadataStoreTask, some
from models.lifecycle.failures import FailureKind
from spark.metadata_store import jobs
from spark.metadata_store.spec import Comparison


class Rest(NamedTuple):
    """What is left of a compare's differences for the caller to bring in line.

    Attributes:
        paths: few.
        highest: the highest version among records that were written here.
    """

    paths: tuple[bytes, ...]
    highest: int = 0


def repair_many(task: MetadataStoreTask, comparison: Comparison) -> Rest:
    """Leave few differences to the caller; where there are too many to be named, bring them in line here.

    Before the commit only, as long as this migration holds the claim of the target.

    Raises:
        StoreConflict: the migration continued without this attempt, which must not write.
        StoreError: a store failed; the step can be repeated.
        ApplicationError: `VerificationFailed`, if many records are different still.
    """
    different = comparison.different
    if different.all_named:
        return Rest(different.named)
    with task.target_claim() as claim:
        claim.renew()
    found = jobs.repair(task.engine, task.fenced_pair, comparison, tag=task.tag())
    if not found.remaining.all_named:
        raise ApplicationError(
            f"{found.remaining.paths:,} records differ in the target after they were written: "
            f"{some(found.remaining.named)}. Does something else write to the target?",
            type=FailureKind.VERIFICATION_FAILED,
            non_retryable=True,
        )
    return Rest(found.remaining.named, found.highest)
