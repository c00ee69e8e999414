"""Phases of the blue-green cluster migration (PIP-188)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Phases of the whole migration."""

    PRECHECK = "PRECHECK"
    PROVISION = "PROVISION"
    FLIP = "FLIP"
    COMPLETE = "COMPLETE"
    GRACE = "GRACE"
    CLEANUP = "CLEANUP"
    ROLLBACK = "ROLLBACK"


class BatchPhase(StrEnum):
    """Phases of one batch of namespaces."""

    LOAD = "LOAD"
    SEED = "SEED"
    QUIESCE = "QUIESCE"
    FLIP = "FLIP"
    DRAIN = "DRAIN"
    VERIFY = "VERIFY"
    ROLLBACK = "ROLLBACK"
