"""Phases of the migration of one regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.outlook import Leg, LegEnd
from models.lifecycle.status import ProgressTask


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


LEGS = (
    Leg((Phase.PRECHECK,)),
    Leg((Phase.CLIENTS,), LegEnd.CUTOVER),
    Leg((Phase.GUARD, Phase.FLIP)),
    Leg((Phase.DRAIN,), measured=(ProgressTask.DRAIN,)),
    Leg((Phase.VERIFY, Phase.COMPLETE)),
    Leg((Phase.GRACE,), LegEnd.WINDOW),
    Leg((Phase.CLEANUP,), measured=(ProgressTask.DELETE,)),
)
"""Phases of one topic in the order in which a migration passes them, with its stops."""

NAMESPACE_LEGS = (
    Leg((NamespacePhase.PRECHECK,)),
    Leg((NamespacePhase.GUARD,), LegEnd.CUTOVER),
    Leg((NamespacePhase.MIGRATE,), measured=(ProgressTask.MIGRATE,), persons="the gates between waves"),
    Leg((NamespacePhase.COMPLETE,)),
    Leg((NamespacePhase.GRACE,), LegEnd.WINDOW),
    Leg((NamespacePhase.CLEANUP,), measured=(ProgressTask.DELETE,)),
)
"""The same of many topics."""

OPERATION_LEGS = (
    Leg((OperationPhase.PRECHECK,)),
    Leg((OperationPhase.OPERATE,), measured=(ProgressTask.OPERATE, ProgressTask.COPY)),
    Leg((OperationPhase.COMPLETE,)),
)
"""The same of an operation."""
