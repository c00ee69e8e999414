"""Auto-scale policy of a scalable topic, as operators write it (PIP-483, PIP-486)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from models.base import Frozen
from models.lifecycle.fields import Bool

_Rate = Annotated[float | None, Field(gt=0)]
_Bytes = Annotated[int | None, Field(gt=0)]


class AutoScale(Frozen):
    """Auto-scale policy of one topic; unset fields are taken from its namespace or from the brokers.

    Attributes:
        enabled: brokers split, merge and rebucket segments automatically.
        min_segments: merges keep at least this many active segments.
        max_segments: splits create at most this many active segments.
        max_dag_depth: most merges in a segment's lineage.
        split_cooldown_seconds: pause between two splits.
        merge_cooldown_seconds: pause between two merges.
        merge_window_seconds: how long segments must have little traffic before they are merged.
        rebucket_cooldown_seconds: pause between two rebuckets.
        split_vs_rebucket_min_msg_rate_in_threshold: messages per second into a segment. With too many consumers, a
            segment below this rate is rebucketed, one above it is split.
        split_msg_rate_in_threshold, split_msg_rate_out_threshold: messages per second above which a segment is split.
        split_bytes_rate_in_threshold, split_bytes_rate_out_threshold: bytes per second above which a segment is split.
        merge_msg_rate_in_threshold, merge_msg_rate_out_threshold: messages per second below which segments are merged.
        merge_bytes_rate_in_threshold, merge_bytes_rate_out_threshold: bytes per second below which segments are merged.
    """

    enabled: Bool | None = None
    min_segments: int | None = Field(default=None, ge=1)
    max_segments: int | None = Field(default=None, ge=1)
    max_dag_depth: int | None = Field(default=None, ge=0)
    split_cooldown_seconds: int | None = Field(default=None, ge=0)
    merge_cooldown_seconds: int | None = Field(default=None, ge=0)
    merge_window_seconds: int | None = Field(default=None, ge=0)
    rebucket_cooldown_seconds: int | None = Field(default=None, ge=0)
    split_vs_rebucket_min_msg_rate_in_threshold: float | None = Field(default=None, ge=0)
    split_msg_rate_in_threshold: _Rate = None
    split_bytes_rate_in_threshold: _Bytes = None
    split_msg_rate_out_threshold: _Rate = None
    split_bytes_rate_out_threshold: _Bytes = None
    merge_msg_rate_in_threshold: _Rate = None
    merge_bytes_rate_in_threshold: _Bytes = None
    merge_msg_rate_out_threshold: _Rate = None
    merge_bytes_rate_out_threshold: _Bytes = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_segments and self.max_segments and self.min_segments > self.max_segments:
            raise ValueError(f"min_segments ({self.min_segments}) must not exceed max_segments ({self.max_segments})")
        return self
