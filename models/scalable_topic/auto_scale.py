"""When brokers split and merge segments of a scalable topic on their own, as operators write it (PIP-483)."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from models.lifecycle.base import Frozen
from models.lifecycle.fields import Bool


class AutoScale(Frozen):
    """The policy of one topic; what is left out is taken from its namespace, or from the brokers.

    Attributes:
        enabled: whether brokers split and merge on their own.
        min_segments: no merge leaves fewer active ones.
        max_segments: no split makes more.
        max_dag_depth: most merges in a segment's lineage.
        split_cooldown_seconds: pause between two splits.
        merge_cooldown_seconds: pause between two merges.
        merge_window_seconds: how long segments must have little traffic before they are merged.
    """

    enabled: Bool | None = None
    min_segments: int | None = Field(default=None, ge=1)
    max_segments: int | None = Field(default=None, ge=1)
    max_dag_depth: int | None = Field(default=None, ge=0)
    split_cooldown_seconds: int | None = Field(default=None, ge=0)
    merge_cooldown_seconds: int | None = Field(default=None, ge=0)
    merge_window_seconds: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_segments and self.max_segments and self.min_segments > self.max_segments:
            # Brokers store it, and then do nothing at all (5.0.0-M1, read).
            raise ValueError(f"min_segments, {self.min_segments}, is more than max_segments, {self.max_segments}")
        return self
