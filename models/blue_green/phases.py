"""Phases of the blue-green cluster migration (PIP-188)."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.outlook import Leg, LegEnd
from models.lifecycle.status import ProgressTask


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


LEGS = (
    Leg((Phase.PRECHECK,)),
    Leg((Phase.PROVISION,), LegEnd.CUTOVER, measured=(ProgressTask.PROVISION,)),
    Leg((Phase.FLIP,), measured=(ProgressTask.MIGRATE,), persons="the gates between waves"),
    Leg((Phase.COMPLETE,)),
    Leg((Phase.GRACE,), LegEnd.WINDOW),
    Leg((Phase.CLEANUP,), measured=(ProgressTask.DELETE,)),
)
"""Phases in the order in which a migration passes them, with its stops."""
