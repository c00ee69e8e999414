"""Phases of the bookie cluster migration (PIP-477)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phases of PIP-477, with the rollback."""

    REGISTER = "REGISTER"
    PRECHECK = "PRECHECK"
    BUILD = "BUILD"
    SWITCH = "SWITCH"
    PROMOTE = "PROMOTE"
    ROLLBACK_WINDOW = "ROLLBACK_WINDOW"
    CLEANUP = "CLEANUP"
    ROLLED_BACK = "ROLLED_BACK"
