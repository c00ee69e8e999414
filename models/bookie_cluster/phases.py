"""Phases of the bookie cluster migration (PIP-477)."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.outlook import Leg, LegEnd
from models.lifecycle.status import ProgressTask


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


LEGS = (
    Leg((Phase.REGISTER, Phase.PRECHECK)),
    Leg(
        (Phase.BUILD,),
        LegEnd.CUTOVER,
        estimate="estimated_copy_seconds",
        measured=(ProgressTask.COPY, ProgressTask.CATCH_UP),
    ),
    Leg((Phase.SWITCH, Phase.PROMOTE), estimate="estimated_pause_seconds"),
    Leg((Phase.ROLLBACK_WINDOW,), LegEnd.WINDOW),
    Leg((Phase.CLEANUP,), measured=(ProgressTask.DELETE,)),
)
"""Phases in the order in which a migration passes them, with its stops."""
