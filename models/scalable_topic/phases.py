"""Phases of the migration of one regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Phases of one topic."""

    PRECHECK = "PRECHECK"
    CLIENTS = "CLIENTS"
    GUARD = "GUARD"
    FLIP = "FLIP"
    DRAIN = "DRAIN"
    VERIFY = "VERIFY"
    COMPLETE = "COMPLETE"
    ROLLBACK = "ROLLBACK"
