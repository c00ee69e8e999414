"""Input of a verification, and which phases of a migration have two sides to compare."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from models.bookie_cluster.input import KIND as BOOKIE_CLUSTER
from models.bookie_cluster.phases import Phase as BookiePhase
from models.lifecycle.fields import Duration
from models.lifecycle.input import WorkflowInput
from models.metadata_store.input import KIND as METADATA_STORE
from models.metadata_store.phases import Phase as StorePhase

KIND = "verification"

_RANGE = re.compile(r"(\d+)-(\d+)")


class LedgerRange(NamedTuple):
    """Ids of ledgers, both ends included."""

    first: int
    last: int


class VerificationInput(WorkflowInput):
    """Input of `Verification`.

    Attributes:
        migration: workflow id of the migration.
        migration_run: id of its first run.
        migration_kind: `metadata-store` or `bookie-cluster`.
        migration_input: input of the migration.
        paths: metadata store: paths that are compared with everything beneath them; everything by default.
        ledgers: bookie cluster: ids of ledgers that are compared, such as `1000-1999`; all by default.
        throttle: limit of what is read of both sides, in megabytes per second; none by default.
        recheck_after: how long a difference must last, before the commit: changes reach the copy a moment later.
    """

    migration: str = Field(min_length=1)
    migration_run: str
    migration_kind: str
    migration_input: dict[str, Any]
    paths: tuple[str, ...] = ()
    ledgers: str = ""
    throttle: float | None = Field(default=None, gt=0)
    recheck_after: Duration = Field(default=timedelta(seconds=30), ge=timedelta(0), le=timedelta(hours=1))

    @field_validator("paths")
    @classmethod
    def _paths_are_absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path.startswith("/") or path.endswith("/") or "//" in path:
                raise ValueError(f"invalid path {path!r}; expected a node's path such as /admin/policies")
        # A path beneath another one would be compared twice.
        return tuple(sorted(path for path in {*paths} if not any(path.startswith(f"{other}/") for other in paths)))

    @field_validator("ledgers")
    @classmethod
    def _ledgers_are_a_range(cls, ledgers: str) -> str:
        if ledgers and (not (match := _RANGE.fullmatch(ledgers)) or not int(match[1]) <= int(match[2]) < 1 << 63):
            raise ValueError(f"invalid range {ledgers!r}; expected FIRST-LAST, such as 1000-1999")
        return ledgers

    @model_validator(mode="after")
    def _scope_is_of_the_kind(self) -> Self:
        """Refuse a scope that would be in the certificate, and would limit nothing."""
        for kind, name, scope in ((METADATA_STORE, "paths", self.paths), (BOOKIE_CLUSTER, "ledgers", self.ledgers)):
            if scope and self.migration_kind != kind:
                raise ValueError(f"{name} are the scope of a {kind}; {self.migration} is a {self.migration_kind}")
        return self

    @property
    def ledger_range(self) -> LedgerRange:
        """The ledgers to compare."""
        match = _RANGE.fullmatch(self.ledgers)
        return LedgerRange(int(match[1]), int(match[2])) if match else LedgerRange(0, (1 << 63) - 1)

    @property
    def workflow_id(self) -> str:
        """The workflow id, one for each migration: the server refuses a second verification at the same time."""
        return verification_id(self.migration)

    @property
    def target_name(self) -> str:
        """The migration."""
        return self.migration

    @property
    def scope(self) -> str:
        """The scope in words."""
        return ", ".join(self.paths) or (f"ledgers {self.ledgers}" if self.ledgers else "everything")

    @property
    def summary(self) -> str:
        """The migration and the scope in one line."""
        return f"{self.migration}: compare {self.scope}"


def verification_id(migration: str) -> str:
    """Return the workflow id of the verification of a migration."""
    return f"verify/{migration}"


class Readiness(StrEnum):
    """Readiness of a migration for a comparison of its two sides."""

    READY = "ready"
    COMMITTED = "committed"
    """Ready, and services write to the target."""
    URGENT = "urgent"
    """Clients wait for the migration, so that nothing else may load its servers."""
    NOTHING = "nothing"
    """There is nothing to compare, and there will not be."""


_READINESS: dict[str, dict[str, Readiness]] = {
    METADATA_STORE: {
        StorePhase.CATCH_UP: Readiness.READY,
        StorePhase.PREPARATION: Readiness.URGENT,
        StorePhase.COPYING: Readiness.URGENT,
        StorePhase.VERIFY: Readiness.URGENT,
        StorePhase.COMPLETED: Readiness.URGENT,
        StorePhase.VALIDATION: Readiness.COMMITTED,
    },
    BOOKIE_CLUSTER: {
        BookiePhase.BUILD: Readiness.READY,
        BookiePhase.SWITCH: Readiness.URGENT,
        BookiePhase.PROMOTE: Readiness.URGENT,
        BookiePhase.ROLLBACK_WINDOW: Readiness.COMMITTED,
        # The cleanup leaves all ledgers, or those that it does not delete.
        BookiePhase.CLEANUP: Readiness.COMMITTED,
    },
}

_UNSUPPORTED = {
    "blue-green": "copied backlogs are compared entry by entry in VERIFY of each batch, and consumers change both "
    "sides after it; the batches' certificates have the result",
    "scalable-topic": "a topic has one copy of its messages, which its migration does not move",
    "scalable-namespace": "topics have one copy of their messages, which their migration does not move",
    "scalable-operation": "each operation compares what it copies, and has the proof in its report",
}


def unsupported(kind: str) -> str:
    """Return why migrations of a kind cannot be verified by request; empty if they can."""
    if kind in _READINESS:
        return ""
    return _UNSUPPORTED.get(kind, f"{kind} is not a kind of migration")


def readiness(kind: str, phase: str, *, running: bool) -> Readiness:
    """Return whether a migration has two sides to compare.

    Args:
        kind: of the migration.
        phase: its running phase, or the last one.
        running: whether its workflow runs.
    """
    state = _READINESS.get(kind, {}).get(phase, Readiness.NOTHING)
    return state if running or state is Readiness.COMMITTED else Readiness.NOTHING


def objection(kind: str, phase: str, *, running: bool) -> str:
    """Return why a verification cannot start now; empty if it can."""
    if why := unsupported(kind):
        return why
    if readiness(kind, phase, running=running) is not Readiness.NOTHING:
        return ""
    phases = ", ".join(_READINESS[kind])
    state = f"it is in {phase or 'no known phase'}" if running else f"it has ended in {phase or 'no known phase'}"
    return f"there are not two sides to compare: {state}; possible in {phases}"
