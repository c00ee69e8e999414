"""Who may write: one claim for each metadata store, and so for each cluster.

A migration of whatever kind takes the claim in the brokers' metadata store before it changes anything, so that two
migrations of one cluster exclude each other. Each activity that writes moves the claim to its own attempt; every older
attempt, also one that was frozen and wakes up, finds that and stops.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from models.base import Frozen, Result
from models.lifecycle.execution import Execution, InputT

CLAIM = "/pulsar/migration-coordinator/pulsar-migrate"
"""Path of the claim. It lies in Pulsar's own coordination subtree, which is never copied or compared."""

NAMESPACES = f"{CLAIM}-namespaces"
"""Where records of single namespaces are."""


class Attempt(NamedTuple):
    """One attempt at one activity; plain data, so that it travels to an executor.

    Attributes:
        workflow_id: the migration.
        run_id: its first run, with `started_ms`, when that began, in milliseconds since 1970.
        epoch: the activity, and `attempt`, when the attempt at it was scheduled, in milliseconds; both grow.
    """

    workflow_id: str
    run_id: str
    started_ms: int
    epoch: int
    attempt: int

    @classmethod
    def of(cls, execution: Execution[InputT], workflow_id: str, attempt: int) -> Attempt:
        """The attempt that Temporal says this is."""
        started_ms = int(execution.started.timestamp() * 1000)
        return cls(workflow_id, execution.run_id, started_ms, execution.epoch, attempt)

    def is_newer_than(self, other: Attempt) -> bool:
        """Whether this is of a newer run of the same migration, or a newer attempt of the same run."""
        if self.workflow_id != other.workflow_id:
            return False
        if self.run_id != other.run_id:
            return self.started_ms >= other.started_ms  # mutant: shared/newer-run-is-not-newer
        return (self.epoch, self.attempt) > (other.epoch, other.attempt)  # mutant: shared/newer-epoch-is-not-newer

    def __str__(self) -> str:
        return f"run {self.run_id}, epoch {self.epoch}, attempt {self.attempt}"


READ_ONLY = Attempt("", "", 0, 0, 0)
"""Whoever only reads."""


class Claim(BaseModel):
    """The claim's record, as JSON; fields that we do not know survive.

    Attributes:
        workflow_id: the migration that holds the claim.
        run_id: its run, with `started_ms`, when that began, in milliseconds since 1970.
        epoch: the newest activity that took the claim, and `attempt`, its attempt.
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
        """Whether the run of an attempt holds the claim."""
        return (self.workflow_id, self.run_id) == (me.workflow_id, me.run_id)

    def is_newer_than(self, me: Attempt) -> bool:
        """Whether a newer run of the same migration, or a newer attempt of the same run, took the claim."""
        return self.holder.is_newer_than(me)

    def encode(self) -> bytes:
        """The record's value."""
        return self.model_dump_json().encode()

    def changed(self, **fields: Any) -> bytes:
        """The record's value with other fields."""
        return self.model_copy(update=fields).encode()


class Changed(Result):
    """A setting that was changed for the time of a migration; part of a claim or of a record next to it.

    Attributes:
        before: its value before; None where it was not set.
        ours: the value that the migration set. What is neither is an operator's, and stays.
    """

    before: Any = None
    ours: Any = None


class PacedClaim(Claim):
    """A claim that also says how fast its attempt may write.

    Attributes:
        throttle: megabytes of values or entries per second, of all tasks together; None for no limit.
    """

    throttle: float | None = None


def namespace_record(namespace: str) -> str:
    """The path of a namespace's record, beside the claim; of one level, since Oxia lists no children of what is not."""
    return f"{NAMESPACES}/{quote(namespace, safe='')}"


class ParentRun(Frozen):
    """A migration whose children write under its claims.

    Attributes:
        workflow_id: of the migration.
        run_id: its first run.
        started: when that began, by Temporal's clock.
    """

    workflow_id: str
    run_id: str
    started: datetime

    def attempt(self, epoch: int, attempt: int) -> Attempt:
        """The attempt at an activity of a child, as claims order it among all of the migration.

        Epochs are times, so activities of the migration and of its children are ordered by when they were scheduled.

        Args:
            epoch: of the activity.
            attempt: its number.
        """
        started_ms = int(self.started.timestamp() * 1000)
        return Attempt(self.workflow_id, self.run_id, started_ms, epoch, attempt)
