"""What the results of all prechecks share."""

from __future__ import annotations

from models.coverage.results import FeatureUse
from models.lifecycle.base import Result
from models.lifecycle.failures import Blocker


class PrecheckResult(Result):
    """Base of the results of prechecks.

    Attributes:
        blockers: what must be cured first; empty means that the migration can start.
        warnings: what the operator should know.
        features: of the cluster that are in use, and what becomes of each.
    """

    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()
    features: tuple[FeatureUse, ...] = ()
