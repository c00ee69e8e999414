"""The policy by which segments split and merge by themselves: by load, by consumers and by the clock.

Names and defaults are those of brokers of Pulsar 5.0 (`AutoScalePolicyOverride`). Their two fields for
rebuckets are refused: segments of this controller have no entry buckets.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from models.base import Frozen
from models.lifecycle.fields import Bool, Duration

_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_MINUTE = timedelta(minutes=1)
# Any year that is no leap year: only whether the expression can be read matters.
_SOME_DAY = datetime(2026, 1, 1)  # noqa: DTZ001 - cron knows no zones


def _cron(text: str) -> str:
    try:
        CronSim(text, _SOME_DAY)
    except CronSimError as error:
        raise ValueError(f"{text!r} is no cron expression ({error}); write minute hour day month weekday") from None
    return text


def _zone(text: str) -> str:
    # Whether it is known is a matter of the machine: looked up where the clock is read, and when somebody sets it.
    if not _ZONE.fullmatch(text):
        raise ValueError(f"{text!r} is no time zone; write Europe/Berlin or the like")
    return text


class _Policy(Frozen):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)


class Window(_Policy):
    """A time with more segments: they are there when it begins, and are not merged in it.

    Attributes:
        cron: when it begins: minute hour day month weekday.
        time_zone: of the expression, a name of the IANA database.
        duration: how long it is.
        min_segments: how many active segments there are at least.
    """

    cron: Annotated[str, AfterValidator(_cron)]
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    duration: Duration = Field(gt=timedelta(0), le=timedelta(days=7))
    min_segments: int = Field(ge=1)

    def contains(self, now: datetime) -> bool:
        """Whether it is that time.

        Raises:
            ZoneInfoNotFoundError: this machine does not know the time zone.
        """
        # The search finds what is before, and a window begins with its minute.
        local = now.astimezone(ZoneInfo(self.time_zone)) + _MINUTE
        began = next(CronSim(self.cron, local.replace(second=0, microsecond=0), reverse=True), None)
        # By the clock of the wall it would last an hour less, or more, when summer time begins or ends.
        return began is not None and now < began.astimezone(UTC) + self.duration


class AutoScale(_Policy):
    """The policy of one topic.

    Attributes:
        enabled: False does nothing, and keeps the policy.
        dry_run: only say what would be done.
        interval_seconds: between two looks.
        min_segments, max_segments: active ones; below the first it splits without regard to load and cooldown.
        max_dag_depth: merges in a row from which a segment may come.
        split_cooldown_seconds: after a split or a merge, also by hand, until the next split by load or consumers.
        merge_cooldown_seconds: after a split or a merge, also by hand, until the next merge.
        merge_window_seconds: for so long two neighbours must be below the merge thresholds.
        split_for_consumers: also split while an ordered subscription has more consumers than there are segments.
        split_msg_rate_in_threshold, …: of one segment, messages or bytes per second; at one of these it splits.
        merge_msg_rate_in_threshold, …: below all of these it may be merged; below those for splits.
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
    windows: tuple[Window, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_segments > self.max_segments:
            raise ValueError(f"minSegments {self.min_segments} is more than maxSegments {self.max_segments}")
        for window in self.windows:
            if window.min_segments > self.max_segments:
                raise ValueError(f"a window's minSegments {window.min_segments} is more than {self.max_segments}")
        for split, merge in zip(self.split_at, self.merge_below, strict=True):
            if merge >= split:
                raise ValueError(
                    f"a merge threshold ({merge:g}) is not below its split threshold ({split:g}): segments would be "
                    "split and merged in turn"
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
    """Another policy; `null` for none."""

    policy: AutoScale | None


class Load(NamedTuple):
    """Per second, as a segment's broker measures it."""

    msg_rate_in: float = 0.0
    bytes_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bytes_rate_out: float = 0.0

    def below(self, limits: Load) -> bool:
        """Whether all of it is below."""
        return all(value < limit for value, limit in zip(self, limits, strict=True))

    def heat(self, limits: Load) -> float:
        """The greatest part of a limit that it has."""
        return max(value / limit for value, limit in zip(self, limits, strict=True))

    def plus(self, other: Load) -> Load:
        """Both together."""
        return Load(*(one + two for one, two in zip(self, other, strict=True)))
