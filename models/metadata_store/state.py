"""Facts, figures, certificate and state of the metadata store migration."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.base import Figures
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Records, Seconds
from models.metadata_store.results import Precheck, PreCopy, Restoration


class MetadataStoreFacts(Figures):
    """Results of checks.

    Attributes:
        precheck: the result of PRECHECK.
        still_on_source: brokers and bookies that still use the source, with the evidence for each.
        not_known: what is not known about that, and why.
    """

    precheck: Precheck | None = None
    still_on_source: list[str] | None = None
    not_known: list[str] | None = None


class MetadataStoreFigures(Figures):
    """Measured values.

    Attributes:
        blockers: number of blockers of a dry run.
        copied_records: written by the bulk copy, with `copied_bytes` of values, in `copy_seconds`.
        compare_seconds: the full compare of both stores.
        catch_up_rounds: rounds after that, while brokers write.
        caught_up_before_cutover: records that changed while the migration held before its cut-over, and were copied.
        preparation_seconds: until every participant was ready in the target.
        changes_known_by: `watch` or `scan`.
        changed_records: changed since CATCH_UP; of these `changes_written` and `changes_deleted`, in
            `change_copy_seconds`.
        verify_seconds: the compare while writes were blocked.
        blocked_seconds: how long metadata writes were blocked, by the source's own clock.
        removed_from_target: records that a rollback removed.
        removed_from_source: records that the cleanup removed.
    """

    blockers: Count | None = None
    copied_records: Records | None = None
    copied_bytes: Bytes | None = None
    copy_seconds: Seconds | None = None
    compare_seconds: Seconds | None = None
    catch_up_rounds: Count | None = None
    caught_up_before_cutover: Records | None = None
    preparation_seconds: Seconds | None = None
    changes_known_by: str | None = None
    changed_records: Records | None = None
    changes_written: Records | None = None
    changes_deleted: Records | None = None
    change_copy_seconds: Seconds | None = None
    verify_seconds: Seconds | None = None
    blocked_seconds: Seconds | None = None
    removed_from_target: Records | None = None
    removed_from_source: Records | None = None


class MetadataStoreCertificate(Figures):
    """Certificate of the comparisons.

    Attributes:
        source: address of the old store.
        target: address of the new store.
        compared_in_pre_copy: records of both stores that were compared while brokers wrote.
        compared_while_blocked: records compared while writes were blocked; all of them where
            `compared_whole_while_blocked`.
        caught_up: records that the full compare found different, because they had changed, and that were written again.
        repaired: records that differed while writes were blocked, and were written again.
        differences: number of remaining differences.
        method: what is compared of a record, and how.
        ephemerals_recreated: ephemerals in the target with live sessions before the commit.
        late_writes_followed: writes of brokers that had not followed the commit yet, and were copied.
        completed_at: when the flag became COMPLETED.
    """

    source: str | None = None
    target: str | None = None
    compared_in_pre_copy: Records | None = None
    compared_while_blocked: Records | None = None
    compared_whole_while_blocked: bool | None = None
    caught_up: Records | None = None
    repaired: Records | None = None
    differences: Records | None = None
    method: str | None = None
    ephemerals_recreated: Records | None = None
    late_writes_followed: Records | None = None
    completed_at: datetime | None = None


class MetadataStoreState(MigrationState[MetadataStoreFacts, MetadataStoreFigures, MetadataStoreCertificate]):
    """The state of one metadata store migration.

    Attributes:
        pre: the result of the bulk copy, from which the next phases continue.
        cutover_gaps: how often a cut-over was postponed because a worker did not know all changes of the source.
        restored: the result of the rollback; None before that.
        refused_cleanup: why the last cleanup was refused, so that it is noted once.
        sessions: of services in the target at the commit; see `Completion`.
    """

    facts: MetadataStoreFacts = Field(default_factory=MetadataStoreFacts)
    figures: MetadataStoreFigures = Field(default_factory=MetadataStoreFigures)
    certificate: MetadataStoreCertificate = Field(default_factory=MetadataStoreCertificate)
    pre: PreCopy | None = None
    cutover_gaps: int = 0
    restored: Restoration | None = None
    refused_cleanup: str = ""
    sessions: dict[str, int] = Field(default_factory=dict[str, int])

    @property
    def copied(self) -> PreCopy:
        """The result of the bulk copy.

        Raises:
            RuntimeError: nothing was copied yet, which no phase asks before.
        """
        if self.pre is None:
            raise RuntimeError("nothing was copied yet")
        return self.pre
