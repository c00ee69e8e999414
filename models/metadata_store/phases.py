"""Phases of the metadata store migration (PIP-454)."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.outlook import Leg, LegEnd
from models.lifecycle.status import ProgressTask


class Phase(StrEnum):
    """The phases of PIP-454, with those that we put before and between them."""

    PRECHECK = "PRECHECK"
    PRE_COPY = "PRE_COPY"
    CATCH_UP = "CATCH_UP"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    VERIFY = "VERIFY"
    COMPLETED = "COMPLETED"
    VALIDATION = "VALIDATION"
    CLEANUP = "CLEANUP"
    FAILED = "FAILED"


LEGS = (
    Leg((Phase.PRECHECK,)),
    Leg(
        (Phase.PRE_COPY, Phase.CATCH_UP),
        LegEnd.CUTOVER,
        estimate="estimated_copy_seconds",
        measured=(ProgressTask.COMPARE,),
    ),
    Leg(
        (Phase.PREPARATION, Phase.COPYING, Phase.VERIFY, Phase.COMPLETED),
        estimate="estimated_blocked_seconds",
    ),
    Leg((Phase.VALIDATION,), LegEnd.WINDOW),
    Leg((Phase.CLEANUP,)),
)
"""Phases in the order in which a migration passes them, with its stops."""
