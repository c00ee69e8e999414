"""The migration flag in a ZooKeeper store, as Pulsar reads and writes it (PIP-454, "Migration State")."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

FLAG = "/pulsar/migration-coordinator/migration"


PARTICIPANTS = "/pulsar/migration-coordinator/participants"


class FlagPhase(StrEnum):
    """The phases that the flag can show."""

    NOT_STARTED = "NOT_STARTED"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


OPEN_PHASES = (FlagPhase.NOT_STARTED, FlagPhase.FAILED)
"""The phases in which services write to this store."""

BLOCKING_PHASES = (FlagPhase.PREPARATION, FlagPhase.COPYING)
"""The phases in which services write to no store."""


class Flag(BaseModel):
    """The flag; fields that a newer Pulsar writes survive."""

    model_config = ConfigDict(frozen=True, extra="allow")

    phase: FlagPhase
    targetUrl: str | None = None  # noqa: N815 - Pulsar's own name

    def encode(self) -> bytes:
        """Return the flag's value."""
        return self.model_dump_json(exclude_none=True).encode()
