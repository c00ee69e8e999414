"""The receipt of a plan: its input and the facts that its dry run found, to which a start can be bound."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Self, cast

from pydantic import BaseModel, Field, model_validator

from models.base import Frozen, json_sum
from models.lifecycle.fields import Time
from models.text import shown

RECEIPT_DRIFT = "RECEIPT_DRIFT"
"""Code of the blocker of a start whose servers differ from the receipt."""

NOT_PLANNED = frozenset({"dry_run", "receipt", "receipt_max_age"})
"""Fields that differ between a plan and its start."""

_NOTHING = "nothing"


class Receipt(Frozen):
    """Findings of a dry run without blockers. Its sum shows mistakes and changes by hand; it is not a signature.

    Attributes:
        kind: kind of the migration.
        cluster: name of the cluster.
        planned_at: end of the dry run.
        input: of the dry run, without defaults.
        facts: what may not differ at the start, by name: releases, servers, clusters, features in use.
        counts: what changes while a cluster is used, for the record.
        warnings: of the dry run, for the record.
        sha256: sum of all of it.
    """

    kind: str
    cluster: str
    planned_at: Time
    input: dict[str, Any]
    facts: dict[str, str]
    counts: dict[str, float] = Field(default_factory=dict[str, float])
    warnings: tuple[str, ...] = ()
    sha256: str

    @classmethod
    def of(
        cls,
        kind: str,
        cluster: str,
        *,
        planned_at: datetime,
        input: Mapping[str, Any],
        facts: Mapping[str, str],
        counts: Mapping[str, float],
        warnings: tuple[str, ...],
    ) -> Self:
        """Return a receipt with its sum."""
        values = {name: value for name, value in input.items() if name not in NOT_PLANNED}
        receipt = cls.model_construct(
            kind=kind,
            cluster=cluster,
            planned_at=planned_at,
            input=values,
            facts={**facts},
            counts={**counts},
            warnings=warnings,
            sha256="",
        )
        return receipt.model_copy(update={"sha256": _sum(receipt)})

    @model_validator(mode="after")
    def _is_unchanged(self) -> Self:
        if self.sha256 != _sum(self):
            raise ValueError("it was changed after the dry run wrote it: its sha256 differs; plan again")
        return self

    def drift(self, facts: Mapping[str, str]) -> list[str]:
        """Return each fact that differs now, as `name: old → new`."""
        return list(_differences(self.facts, facts))

    def input_drift(self, planned: BaseModel, started: BaseModel) -> list[str]:
        """Return each field of an input that differs from the one that was planned, as `name: old → new`.

        Args:
            planned: `input`, read as the input of this version.
            started: input of the start.
        """
        ours, theirs = (
            {name: json.dumps(value, ensure_ascii=False) for name, value in model.model_dump(mode="json").items()}
            for model in (planned, started)
        )
        return [line for line in _differences(ours, theirs) if line.partition(":")[0] not in NOT_PLANNED]


def numbers(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a result by name, with `.` between the names of nested values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from numbers(cast("Mapping[str, Any]", value), f"{above}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{above}{name}", float(value)


def _sum(receipt: Receipt) -> str:
    # Without defaults: a field that a later version adds does not change the sum of an older receipt.
    return json_sum(receipt.model_dump(mode="json", exclude={"sha256"}, exclude_defaults=True))


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield f"{name}: {shown(before.get(name, _NOTHING))} → {shown(now.get(name, _NOTHING))}"
