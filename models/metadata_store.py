"""Plan, phases and facts of the metadata store migration (PIP-454)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from models.migration import Blocker, Frozen, MigrationPlan, SourceCleanup
from models.store_url import StoreUrl, parse_store_url

KIND = "metadata-store"
FLAG = "/pulsar/migration-coordinator/migration"
PARTICIPANTS = "/pulsar/migration-coordinator/participants"
CLAIM = "/pulsar/migration-coordinator/pulsar-migrate"
"""Our own record beside the flag: in the source it names the flag's owner, in the target the attempt that may write."""

StoreAddress = Annotated[str, AfterValidator(lambda text: str(parse_store_url(text)))]


class Mode(StrEnum):
    """`live`: brokers and bookies take part (PIP-454). `offline`: all of them are stopped."""

    LIVE = "live"
    OFFLINE = "offline"


class Phase(StrEnum):
    """The phases of PIP-454, with those that we put before and between them."""

    PRECHECK = "PRECHECK"
    PRE_COPY = "PRE_COPY"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    VERIFY = "VERIFY"
    COMPLETED = "COMPLETED"
    VALIDATION = "VALIDATION"
    CLEANUP = "CLEANUP"
    FAILED = "FAILED"


class FlagPhase(StrEnum):
    """The phases that the flag in the source store can show (PIP-454, "Migration State")."""

    NOT_STARTED = "NOT_STARTED"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class MetadataStorePlan(MigrationPlan):
    """Input of `MetadataStoreMigration`.

    Attributes:
        source: where the metadata is: `zk:host:port[,...][/chroot]` or `oxia://host:port[/namespace]`.
        target: where it shall be, in the same forms. Brokers get this text as their new store, so it must be an address
            that they can reach. Live migrations start from ZooKeeper.
        mode: `live` or `offline`.
        preparation_timeout: how long brokers and bookies may take to recreate their ephemerals in the target.
        blocked_deadline: the longest time that metadata writes may stay blocked; then the migration fails by itself.
        concurrency: parts into which a store is split for Spark.
        throttle: limit of the bulk copy in megabytes of values per second; none by default.
        validation_window: how long the source is kept under watch after COMPLETED.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with the source.
        cleanup_at_window_end: clean up when the window ends, without being told.
        cleanup_limit: most records that one step of the cleanup removes; it goes on in further steps.
        replace_target: empty a target that holds records of others. They are lost.
        full_verify: compare both stores whole once more while writes are blocked.
    """

    source: StoreAddress
    target: StoreAddress
    mode: Mode = Mode.LIVE
    preparation_timeout: timedelta = Field(default=timedelta(seconds=60), gt=timedelta(0), le=timedelta(hours=1))
    blocked_deadline: timedelta = Field(default=timedelta(minutes=5), gt=timedelta(0), le=timedelta(hours=6))
    concurrency: int = Field(default=16, ge=1, le=1024)
    throttle: float | None = Field(default=None, gt=0)
    validation_window: timedelta = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    cleanup: SourceCleanup = SourceCleanup.LEAVE
    cleanup_at_window_end: bool = False
    cleanup_limit: int = Field(default=100_000, ge=1)
    replace_target: bool = False
    full_verify: bool = False

    @model_validator(mode="after")
    def _stores_fit(self) -> MetadataStorePlan:
        if self.source_url.overlaps(self.target_url):
            raise ValueError(f"source {self.source} and target {self.target} are, or hold, the same tree")
        if self.mode is Mode.LIVE and self.source_url.scheme != "zk":
            raise ValueError(
                "a live migration starts from ZooKeeper: only there brokers and bookies watch the migration flag; "
                'stop them and use "mode": "offline"'
            )
        return self

    @property
    def source_url(self) -> StoreUrl:
        """The source, taken apart."""
        return parse_store_url(self.source)

    @property
    def target_url(self) -> StoreUrl:
        """The target, taken apart."""
        return parse_store_url(self.target)

    @property
    def workflow_id(self) -> str:
        """One migration for each cluster: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}"


class Survey(Frozen):
    """What the source holds.

    Attributes:
        records: persistent records that will be copied.
        value_bytes: sum of their values.
        ephemerals: records that belong to sessions; never copied.
        largest_path: the record with the largest value, `largest_bytes` long.
        unreadable: paths whose ACL denies reading (at most 100 are named).
    """

    records: int
    value_bytes: int
    ephemerals: int
    largest_path: str
    largest_bytes: int
    unreadable: tuple[str, ...]
    unreadable_count: int


class Precheck(Frozen):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        blockers: what must be cured first; empty means that the migration can start.
        warnings: what the operator should know.
        participants: services that take part, by name.
        estimated_blocked_seconds: estimate of the time with metadata writes blocked, with its basis.
    """

    blockers: tuple[Blocker, ...]
    warnings: tuple[str, ...]
    survey: Survey | None
    participants: tuple[str, ...]
    flag: FlagPhase
    estimated_copy_seconds: float
    estimated_blocked_seconds: float
    estimate_basis: str


class PreCopy(Frozen):
    """Result of PRE_COPY.

    Attributes:
        since_zxid: every change of the source that is not in the target yet has a larger zxid.
        copied: records written by the bulk copy.
        compared: records that the full compare read in the source.
        repaired: records that the compare found different, and that were written again.
        rounds: catch-up rounds after the compare.
        version_floor: Oxia numbers what services write from now on above this; 0 for other targets.
        worker_queue: the queue of the worker that watches the source; the next steps are fastest there.
    """

    since_zxid: int
    copied: int
    copied_bytes: int
    copy_seconds: float
    compared: int
    compare_seconds: float
    repaired: int
    rounds: int
    version_floor: int
    worker_queue: str


class Preparation(Frozen):
    """Result of PREPARATION: all participants are ready, and `ephemerals` stand in the target with live sessions."""

    ephemerals: int
    seconds: float


class ChangeCopy(Frozen):
    """Result of COPYING.

    Attributes:
        by: `watch` (the changes were known) or `scan` (the watch had a gap; why says `gap`).
    """

    by: str
    gap: str
    changed: int
    written: int
    deleted: int
    seconds: float


class Verification(Frozen):
    """Result of VERIFY.

    Attributes:
        compared: records compared while writes were blocked.
        repaired: records that differed once and were written again.
        whole: whether both stores were read whole while writes were blocked (`full_verify`, offline, or after a scan).
    """

    compared: int
    repaired: int
    whole: bool
    seconds: float


class Completion(Frozen):
    """Result of COMPLETED.

    Attributes:
        blocked_seconds: time from the flag's PREPARATION to its COMPLETED, by the source's own clock; 0 offline.
        late_copied: records that brokers still wrote to the source until they followed the flag, and that were copied.
        contested: paths that were written on both sides then; the target's state stands.
    """

    blocked_seconds: float
    late_copied: int = 0
    contested: tuple[str, ...] = ()


class Restoration(Frozen):
    """Result of the way back before COMPLETED.

    Attributes:
        committed: the flag turned out to be COMPLETED by this migration: there is nothing to undo.
        flag: the phase that the flag shows now.
        blocked_seconds: time for which writes were blocked, by the source's own clock.
    """

    committed: bool
    flag: FlagPhase
    blocked_seconds: float = 0.0


class Census(Frozen):
    """Who still uses the source after COMPLETED.

    Attributes:
        services: brokers and bookies that run on the old configuration, with the evidence for each.
        unknown: what could not be found out, and why.
    """

    services: tuple[str, ...]
    unknown: tuple[str, ...]


class CleanupStep(Frozen):
    """Result of one bounded step of the cleanup: what was removed, and what remains."""

    removed: int
    remaining: int


class Claim(Frozen):
    """Our record beside the migration flag.

    In the source it says who owns the flag; in the target, which attempt may write, and how fast.

    Attributes:
        workflow_id: the migration that holds the claim, with `run_id` of its run.
        attempt: grows with each attempt of a step that writes; an attempt that is not the newest stops.
        flag_version: source only: version of the flag as this migration last set it; -1 before that.
        blocked_since_ms: source only: when writes were blocked, by the source's clock.
        moved_ms: source only: when the flag was moved to its phase, once it was set to that again; 0 before.
        settled_zxid: source only: what changed later than this transaction id was perhaps not copied before the commit.
        throttle: target only: megabytes of values per second.
    """

    workflow_id: str
    run_id: str
    attempt: int = 0
    flag_version: int = -1
    blocked_since_ms: int = 0
    moved_ms: int = 0
    settled_zxid: int = 0
    throttle: float | None = None


class Flag(Frozen):
    """The migration flag as Pulsar reads it (PIP-454, "Migration State")."""

    phase: FlagPhase
    targetUrl: str | None = None  # noqa: N815 - Pulsar's own name
