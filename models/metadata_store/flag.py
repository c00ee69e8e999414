"""The migration flag in the source store, and our record beside it (PIP-454, "Migration State")."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.base import Result

FLAG = "/pulsar/migration-coordinator/migration"


PARTICIPANTS = "/pulsar/migration-coordinator/participants"


CLAIM = "/pulsar/migration-coordinator/pulsar-migrate"
"""Our own record beside the flag: in the source it names the flag's owner, in the target the attempt that may write."""


class FlagPhase(StrEnum):
    """The phases that the flag in the source store can show (PIP-454, "Migration State")."""

    NOT_STARTED = "NOT_STARTED"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Claim(Result):
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


class Flag(Result):
    """The migration flag as Pulsar reads it (PIP-454, "Migration State")."""

    phase: FlagPhase
    targetUrl: str | None = None  # noqa: N815 - Pulsar's own name
