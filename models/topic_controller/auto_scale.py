"""The policy of automatic splits and merges: by load, by number of consumers and by time.

Names and defaults are those of brokers of Pulsar 5.0 (`AutoScalePolicyOverride`). Its two fields for rebuckets are
refused, because segments of this controller have no entry buckets.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from models.base import Frozen
from models.lifecycle.change_windows import MOST_STARTS, Cron, Schedule
from models.lifecycle.fields import Bool

MAX_WINDOWS = 100
"""Most windows of a policy, which is part of the state and of the inputs of steps."""


class _Policy(Frozen):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)


class Window(Schedule, _Policy):
    """A recurring time with more segments: they exist from its start, and are not merged before its end.

    Attributes:
        min_segments: least number of active segments in the window.
    """

    open: tuple[Cron, ...] = Field(min_length=1, max_length=MOST_STARTS)
    min_segments: int = Field(ge=1)


class AutoScale(_Policy):
    """The auto-scale policy of a topic.

    Attributes:
        enabled: False keeps the policy, but neither splits nor merges.
        dry_run: only report what would be done.
        interval_seconds: time between two checks.
        min_segments, max_segments: limits for active segments. Below the minimum, segments split regardless of load and
            cooldown.
        max_dag_depth: most merges in a row from which a segment may descend.
        split_cooldown_seconds: time from the last split or merge, also a manual one, to the next split by load or
            consumers.
        merge_cooldown_seconds: time from the last split or merge, also a manual one, to the next merge.
        merge_window_seconds: how long two neighbours must stay below the merge thresholds.
        split_for_consumers: also split while an ordered subscription has more consumers than there are segments.
        split_msg_rate_in_threshold, split_msg_rate_out_threshold: messages per second at which a segment splits.
        split_bytes_rate_in_threshold, split_bytes_rate_out_threshold: bytes per second at which a segment splits.
        merge_msg_rate_in_threshold, merge_msg_rate_out_threshold: messages per second below which a segment may be
            merged, if it is below all thresholds for merges. Each must be below the one for splits.
        merge_bytes_rate_in_threshold, merge_bytes_rate_out_threshold: the same in bytes per second.
        windows: times with more segments.
    """

    enabled: Bool = True
    dry_run: Bool = False
    interval_seconds: int = Field(default=60, ge=5, le=3600)
    min_segments: int = Field(default=1, ge=1, le=1024)
    max_segments: int = Field(default=64, ge=1, le=1024)
    max_dag_depth: int = Field(default=10, ge=1)
    split_cooldown_seconds: int = Field(default=60, ge=0)
    merge_cooldown_seconds: int = Field(default=300, ge=0)
    merge_window_seconds: int = Field(default=300, ge=0)
    split_for_consumers: Bool = True
    split_msg_rate_in_threshold: float = Field(default=10_000, gt=0)
    split_bytes_rate_in_threshold: float = Field(default=50e6, gt=0)
    split_msg_rate_out_threshold: float = Field(default=50_000, gt=0)
    split_bytes_rate_out_threshold: float = Field(default=250e6, gt=0)
    merge_msg_rate_in_threshold: float = Field(default=1_000, ge=0)
    merge_bytes_rate_in_threshold: float = Field(default=5e6, ge=0)
    merge_msg_rate_out_threshold: float = Field(default=5_000, ge=0)
    merge_bytes_rate_out_threshold: float = Field(default=25e6, ge=0)
    windows: tuple[Window, ...] = Field(default=(), max_length=MAX_WINDOWS)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.min_segments > self.max_segments:
            raise ValueError(f"minSegments {self.min_segments} is more than maxSegments {self.max_segments}")
        for window in self.windows:
            if window.min_segments > self.max_segments:
                raise ValueError(f"a window's minSegments {window.min_segments} is more than {self.max_segments}")
        for split, merge in zip(self.split_at, self.merge_below, strict=True):
            if merge >= split:
                raise ValueError(
                    f"a merge threshold ({merge:g}) is not below its split threshold ({split:g}): segments would be "
                    "split and merged again and again"
                )
        return self

    @property
    def split_at(self) -> Load:
        """Thresholds for splits."""
        return Load(
            self.split_msg_rate_in_threshold,
            self.split_bytes_rate_in_threshold,
            self.split_msg_rate_out_threshold,
            self.split_bytes_rate_out_threshold,
        )

    @property
    def merge_below(self) -> Load:
        """Thresholds for merges."""
        return Load(
            self.merge_msg_rate_in_threshold,
            self.merge_bytes_rate_in_threshold,
            self.merge_msg_rate_out_threshold,
            self.merge_bytes_rate_out_threshold,
        )


class AutoScaleChange(Frozen):
    """A new auto-scale policy; `null` for none."""

    policy: AutoScale | None


class Load(NamedTuple):
    """Load of a segment per second, as its broker measures it."""

    msg_rate_in: float = 0.0
    bytes_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bytes_rate_out: float = 0.0

    def below(self, limits: Load) -> bool:
        """Return whether all rates are below their limits."""
        return all(value < limit for value, limit in zip(self, limits, strict=True))

    def utilization(self, limits: Load) -> float:
        """Return the largest ratio of a rate to its limit."""
        return max(value / limit for value, limit in zip(self, limits, strict=True))

    def plus(self, other: Load) -> Load:
        """Return the sum of two loads."""
        return Load(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
