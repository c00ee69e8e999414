"""The claim of a migration: one for each metadata store, and so for each cluster.

Every migration takes the claim in the brokers' metadata store before it changes anything, so that two migrations of
one cluster exclude each other. Each activity that writes moves the claim to its own attempt. An older attempt, also one
that was frozen, sees that and stops.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from models.base import Frozen, Result
from models.lifecycle.execution import Execution, InputT

CLAIM = "/pulsar/migration-coordinator/pulsar-migrate"
"""Path of the claim, in Pulsar's own coordination subtree, which is never copied or compared."""

NAMESPACES = f"{CLAIM}-namespaces"
"""Parent of the records of single namespaces."""


class Attempt(NamedTuple):
    """One attempt at one activity; plain data, so that it travels to an executor.

    Attributes:
        workflow_id: the migration.
        run_id: its first run; `started_ms` is the start of that run, in milliseconds since 1970.
        epoch: the activity; `attempt` is when the attempt at it was scheduled, in milliseconds. Both grow.
    """

    workflow_id: str
    run_id: str
    started_ms: int
    epoch: int
    attempt: int

    @classmethod
    def of(cls, execution: Execution[InputT], workflow_id: str, attempt: int) -> Attempt:
        """Return the attempt of an activity's execution."""
        started_ms = int(execution.started.timestamp() * 1000)
        return cls(workflow_id, execution.run_id, started_ms, execution.epoch, attempt)

    @property
    def mark(self) -> str:
        """Name of the attempt among those of its run."""
        return f"{self.epoch}/{self.attempt}"

    def is_newer_than(self, other: Attempt) -> bool:
        """Return whether this is of a newer run of the same migration, or a newer attempt of the same run."""
        if self.workflow_id != other.workflow_id:
            return False
        if self.run_id != other.run_id:
            return self.started_ms >= other.started_ms  # mutant: shared/newer-run-is-not-newer
        return (self.epoch, self.attempt) > (other.epoch, other.attempt)  # mutant: shared/newer-epoch-is-not-newer

    def __str__(self) -> str:
        return f"run {self.run_id}, epoch {self.epoch}, attempt {self.attempt}"


READ_ONLY = Attempt("", "", 0, 0, 0)
"""Attempt of code that only reads."""


class Claim(BaseModel):
    """The claim's record, as JSON; unknown fields are kept.

    Attributes:
        workflow_id: the migration that holds the claim.
        run_id: its run; `started_ms` is the start of that run, in milliseconds since 1970.
        epoch: the newest activity that took the claim; `attempt` is its attempt.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    workflow_id: str
    run_id: str
    started_ms: int = 0
    epoch: int = 0
    attempt: int = 0

    @property
    def holder(self) -> Attempt:
        """The attempt that took the claim last."""
        return Attempt(self.workflow_id, self.run_id, self.started_ms, self.epoch, self.attempt)

    def is_of(self, me: Attempt) -> bool:
        """Return whether the run of an attempt holds the claim."""
        return (self.workflow_id, self.run_id) == (me.workflow_id, me.run_id)

    def is_newer_than(self, me: Attempt) -> bool:
        """Return whether a newer run of the same migration, or a newer attempt of the same run, took the claim."""
        return self.holder.is_newer_than(me)

    def encode(self) -> bytes:
        """Return the record's value."""
        return self.model_dump_json().encode()

    def changed(self, **fields: Any) -> bytes:
        """Return the record's value with other fields."""
        return self.model_copy(update=fields).encode()


class Changed(Result):
    """A setting that a migration overrides for a time; part of a claim or of a record next to it.

    Attributes:
        before: previous value; None where it was not set.
        ours: the value that the migration set. A third value comes from an operator, and is not changed back.
    """

    before: Any = None
    ours: Any = None


class PacedClaim(Claim):
    """A claim that also limits how fast its attempt writes.

    Attributes:
        throttle: megabytes of values or entries per second, for all tasks together; None for no limit.
        held: mark of the attempt whose tasks must stop for now. It names the attempt, so that no other one waits for a
            worker that has died.
    """

    throttle: float | None = None
    held: str = ""


def namespace_record(namespace: str) -> str:
    """Return the path of a namespace's record; one level, since Oxia lists children only of records that exist."""
    return f"{NAMESPACES}/{quote(namespace, safe='')}"


class ParentRun(Frozen):
    """A migration whose children write under its claims.

    Attributes:
        workflow_id: of the migration.
        run_id: its first run.
        started: when that run started, by Temporal's clock.
    """

    workflow_id: str
    run_id: str
    started: datetime

    def attempt(self, epoch: int, attempt: int) -> Attempt:
        """Return the attempt at an activity of a child, ordered among all attempts of the migration.

        Epochs are times, so activities of the migration and its children are ordered by when they were scheduled.

        Args:
            epoch: of the activity.
            attempt: its number.
        """
        started_ms = int(self.started.timestamp() * 1000)
        return Attempt(self.workflow_id, self.run_id, started_ms, epoch, attempt)
