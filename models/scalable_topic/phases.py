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
    GRACE = "GRACE"
    CLEANUP = "CLEANUP"
    ROLLBACK = "ROLLBACK"


class NamespacePhase(StrEnum):
    """Phases of many topics; those of each topic are in its own workflow."""

    PRECHECK = "PRECHECK"
    GUARD = "GUARD"
    MIGRATE = "MIGRATE"
    COMPLETE = "COMPLETE"
    GRACE = "GRACE"
    CLEANUP = "CLEANUP"
    ROLLBACK = "ROLLBACK"


class OperationPhase(StrEnum):
    """Phases of an operation on scalable topics."""

    PRECHECK = "PRECHECK"
    OPERATE = "OPERATE"
    COMPLETE = "COMPLETE"
    ROLLBACK = "ROLLBACK"
