"""The result of a migration."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from models.lifecycle.status import Outcome, PhaseEntry


class Report(BaseModel):
    """The result of a migration.

    Attributes:
        outcome: done, planned (dry run) or rolled back; a failed migration fails its workflow instead.
        figures: measured values by name, units in the names.
        certificate: what was compared, and what was found.
        failed_items: what could not be migrated, by name, with the reason.
    """

    kind: str
    cluster: str
    outcome: Outcome
    summary: str
    history: list[PhaseEntry]
    figures: dict[str, Any]
    certificate: dict[str, Any]
    notes: list[str]
    failed_items: list[str] = []
