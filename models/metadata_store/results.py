"""Results of the activities of the metadata store migration."""

from __future__ import annotations

from pydantic import Field

from models.base import Result
from models.lifecycle.report import PrecheckResult
from models.migration_flag import FlagPhase


class Survey(Result):
    """Content of the source.

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


class Precheck(PrecheckResult):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        participants: services that take part, by name.
        estimated_blocked_seconds: estimate of the time with metadata writes blocked, with its basis.
    """

    survey: Survey | None
    participants: tuple[str, ...]
    flag: FlagPhase
    estimated_copy_seconds: float
    estimated_blocked_seconds: float
    estimate_basis: str


class PreCopy(Result):
    """Result of PRE_COPY.

    Attributes:
        since_zxid: every change of the source that is not in the target yet has a larger zxid.
        copied: records written by the bulk copy.
        compared: records that the full compare read in the source.
        repaired: records that the compare found different, and that were written again.
        rounds: catch-up rounds after the compare.
        version_floor: Oxia numbers what services write from now on above this; 0 for other targets.
        highest_version: among the records of the source.
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
    highest_version: int = 0


class CatchUp(Result):
    """Result of one round of CATCH_UP.

    Attributes:
        since_zxid: every change of the source that is not in the target yet has a larger zxid.
        changed: records that had changed and were brought in line.
        gap: why the source was scanned; empty where the changes were known.
        version_floor: Oxia numbers what services write from now on above this; 0 for other targets.
        worker_queue: the queue of the worker that watches the source now.
    """

    since_zxid: int
    changed: int
    gap: str
    version_floor: int
    worker_queue: str


class Preparation(Result):
    """Result of PREPARATION.

    Attributes:
        ephemerals: number in the target with live sessions; all participants are ready.
        seconds: duration.
        gap: why the flag was not set: this worker does not know the changes of the source, and would scan it with
            writes blocked. Empty if the flag was set.
    """

    ephemerals: int
    seconds: float
    gap: str = ""


class ChangeCopy(Result):
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


class Verification(Result):
    """Result of VERIFY.

    Attributes:
        compared: records compared while writes were blocked.
        repaired: records that differed once and were written again.
        whole: whether both stores were read whole while writes were blocked (`full_verify` and offline).
        version_floor: as in `PreCopy`, raised where a record had outrun it.
    """

    compared: int
    repaired: int
    whole: bool
    seconds: float
    version_floor: int = 0


class Completion(Result):
    """Result of COMPLETED.

    Attributes:
        blocked_seconds: time from the flag's PREPARATION to its COMPLETED, by the source's own clock; 0 offline.
        late_copied: copied records that brokers wrote to the source before they followed the flag.
        contested: paths that were written on both sides since the commit, where the target's state is kept; some of
            `contested_count`.
        quiet: no service wrote to the source any more at the end.
        sessions: brokers and bookies that were registered in the target at the commit, each with its session there.
    """

    blocked_seconds: float
    late_copied: int = 0
    contested: tuple[str, ...] = ()
    contested_count: int = 0
    quiet: bool = True
    sessions: dict[str, int] = Field(default_factory=dict[str, int])


class LateWrites(Result):
    """Writes of services to the source since the last check, after the commit; see `Completion`.

    Attributes:
        contested: those of earlier checks too, as far as the worker knows them.
        not_deleted: records that are gone in the source, and were not deleted in the target; as `contested`.
        foreign: number of copied records that are not Pulsar's.
    """

    copied: int = 0
    contested: tuple[str, ...] = ()
    contested_count: int = 0
    not_deleted: int = 0
    foreign: int = 0


class Restoration(Result):
    """Result of the rollback before COMPLETED.

    Attributes:
        committed: this migration has already set the flag to COMPLETED: nothing can be undone.
        flag: current phase of the flag.
        blocked_seconds: time for which writes were blocked, by the source's own clock.
    """

    committed: bool
    flag: FlagPhase
    blocked_seconds: float = 0.0


class Census(Result):
    """Users of the source after COMPLETED.

    Attributes:
        services: brokers and bookies that use the source, with the evidence for each.
        unknown: what is not known, and why.
    """

    services: tuple[str, ...]
    unknown: tuple[str, ...]


class CleanupStep(Result):
    """Result of one bounded step of the cleanup.

    Attributes:
        removed: records that were removed.
        remaining: 0 once all is removed; else an estimate, as a step reads only what it needs.
    """

    removed: int
    remaining: int
