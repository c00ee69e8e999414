"""The results of prechecks and of migrations."""

from __future__ import annotations

from typing import Any, Generic

from pydantic import BaseModel, Field, field_serializer
from typing_extensions import TypeVar

from models.base import Result
from models.coverage.results import FeatureUse
from models.lifecycle.audit import AuditEntry
from models.lifecycle.failures import NAMED, Blocker, FailedItems, first_blockers
from models.lifecycle.receipt import Receipt, numbers
from models.lifecycle.status import FiguresT, Outcome, PhaseEntry

CertificateT = TypeVar("CertificateT", default=dict[str, Any])


class Report(BaseModel, Generic[FiguresT, CertificateT]):
    """The result of a migration.

    Attributes:
        outcome: done, planned (dry run) or rolled back; a failed migration fails its workflow instead.
        figures: measured values; each migration has its own model.
        certificate: what was compared, with the result; each migration has its own model.
        failed_items: items that could not be migrated, with the reasons.
        features: in use at the precheck, with their outcome, and what was accepted.
        started_by: who started it, as the sender names itself.
        audit: the requests to it, accepted and refused, as a chain of hashes.
        receipt: of a dry run without blockers; a start can be bound to it.
    """

    kind: str
    cluster: str
    outcome: Outcome
    summary: str
    history: list[PhaseEntry]
    figures: FiguresT
    certificate: CertificateT
    notes: list[str]
    failed_items: list[FailedItems] = []
    features: list[FeatureUse] = []
    started_by: str = ""
    audit: list[AuditEntry] = []
    receipt: Receipt | None = None


class PrecheckResult(Result):
    """Base of the results of prechecks.

    Attributes:
        blockers: to be cured first; empty if the migration can start.
        warnings: for the operator.
        features: in use on the cluster, with their outcome.
        fingerprint: facts that a receipt keeps, by name.
    """

    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()
    features: tuple[FeatureUse, ...] = ()
    fingerprint: dict[str, str] = Field(default_factory=dict[str, str])

    @field_serializer("blockers")
    def _named_blockers(self, blockers: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
        return first_blockers(blockers)

    @field_serializer("warnings")
    def _named_warnings(self, warnings: tuple[str, ...]) -> tuple[str, ...]:
        more = len(warnings) - NAMED + 1
        return warnings if more <= 1 else (*warnings[: NAMED - 1], f"{more:,} more warnings")

    @property
    def counts(self) -> dict[str, float]:
        """Return all numbers of the result, by name."""
        return dict(numbers(self.model_dump(mode="json", exclude={"blockers", "features"})))
