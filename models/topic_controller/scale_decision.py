"""Decision which split or merge is due by a topic's policy; pure functions, which call no server and no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Self

from models.base import Result
from models.segments.layout import SegmentLayout
from models.segments.segment import HashRange
from models.topic_controller.auto_scale import AutoScale, Load
from models.topic_controller.record import Change


class ScaledSegment(Result):
    """An active segment.

    Attributes:
        segment_id: id of the segment.
        hash_range: hash range of its keys.
        depth: number of merges in a row from which it descends, as far as the layout still shows them.
    """

    segment_id: int
    hash_range: HashRange
    depth: int = 0

    @property
    def descriptor(self) -> str:
        """The segment's part of the topic's name."""
        return f"{self.hash_range}-{self.segment_id}"

    @classmethod
    def all_of(cls, layout: SegmentLayout) -> tuple[Self, ...]:
        """Return the active segments of a layout, in the order of their hashes."""
        depths: dict[int, int] = {}
        # A child always has a higher id than its parents.
        for segment_id, segment in sorted(layout.segments.items()):
            before = max((depths[parent] for parent in segment.parent_ids), default=0)
            depths[segment_id] = before + (len(segment.parent_ids) > 1)
        return tuple(
            cls(segment_id=segment.segment_id, hash_range=segment.hash_range, depth=depths[segment.segment_id])
            for segment in layout.active
        )


class Decision(Result):
    """A change that is due.

    Attributes:
        change: split or merge.
        segments: ids of the segments.
        why: the reason, a sentence.
    """

    change: Change
    segments: tuple[int, ...]
    why: str


class ScaleWatch(Result):
    """Input of a check whether a change is due.

    Attributes:
        policy: policy of the topic.
        segments: active segments, in the order of their hashes.
        changed_at_ms: when segments last split or merged, automatically or manually, in milliseconds since 1970; 0 for
            never. Cooldowns start with it.
    """

    policy: AutoScale
    segments: tuple[ScaledSegment, ...]
    changed_at_ms: int = 0


class ScaleVerdict(NamedTuple):
    """Result of a check whether a change is due.

    Attributes:
        decision: the change that is due; None for none.
        why: why nothing is due.
        low_since: since when segments are below the merge thresholds, in milliseconds since 1970, by id.
    """

    decision: Decision | None
    why: str
    low_since: dict[int, int]


class LoadSnapshot(NamedTuple):
    """Load of a topic at one time.

    Attributes:
        loads: load of each segment, by id.
        consumers: number of consumers of the ordered subscription that has most.
        low_since: since when segments are below the merge thresholds, by the previous check, by id.
        now: time of the check.
    """

    loads: Mapping[int, Load]
    consumers: int
    low_since: Mapping[int, int]
    now: datetime

    @property
    def now_ms(self) -> int:
        """Time of the check in milliseconds since 1970."""
        return int(self.now.timestamp() * 1000)


def decide(watch: ScaleWatch, seen: LoadSnapshot) -> ScaleVerdict:
    """Return the change that is due, at most one: first the minimum of segments, then splits, then merges."""
    policy, segments = watch.policy, watch.segments
    open_windows = [window for window in policy.windows if window.is_open(seen.now)]
    floor = min(max([policy.min_segments, *(window.min_segments for window in open_windows)]), policy.max_segments)
    low = {segment.segment_id for segment in segments if seen.loads[segment.segment_id].below(policy.merge_below)}
    low_since = {segment_id: seen.low_since.get(segment_id, seen.now_ms) for segment_id in low}
    reasons: list[str] = []
    seen = seen._replace(low_since=low_since)
    decision = _split(watch, seen, floor, reasons)
    if decision is None and open_windows:  # mutant: topic-controller/merges-in-a-window
        reasons.append("nothing is merged in a window")
    elif decision is None:
        decision = _merge(watch, seen, floor, reasons)
    return ScaleVerdict(decision, "; ".join(reasons), low_since)


def _split(watch: ScaleWatch, seen: LoadSnapshot, floor: int, reasons: list[str]) -> Decision | None:
    policy, count = watch.policy, len(watch.segments)
    divisible = [segment for segment in watch.segments if segment.hash_range.size > 1]
    if count >= policy.max_segments or not divisible:
        reasons.append(f"{count} segments are the maximum")
        return None

    def utilization(segment: ScaledSegment) -> tuple[float, int]:
        return seen.loads[segment.segment_id].utilization(policy.split_at), segment.hash_range.size

    hottest = max(divisible, key=utilization)
    cooling = _is_cooling_down(watch, seen, policy.split_cooldown_seconds)
    if count < floor and not (policy.dry_run and cooling):
        widest = max(divisible, key=lambda segment: (segment.hash_range.size, utilization(segment)))
        return _due(Change.SPLIT, [widest], f"{count} segments are fewer than {floor}")
    if utilization(hottest)[0] >= 1:
        why = f"segment {hottest.segment_id} has {utilization(hottest)[0]:.2f} times the load at which it splits"
    elif policy.split_for_consumers and seen.consumers > count:
        why = f"{seen.consumers} consumers share {count} segments"
    else:
        reasons.append("no segment is at a split threshold")
        return None
    if cooling:
        reasons.append(f"{why}, and the cooldown of splits is not over")
        return None
    return _due(Change.SPLIT, [hottest], why)


def _is_cooling_down(watch: ScaleWatch, seen: LoadSnapshot, cooldown_seconds: int) -> bool:
    """Return whether a cooldown is not over; in a dry run, which changes nothing, it lasts an interval or more."""
    policy = watch.policy
    least = policy.interval_seconds if policy.dry_run else 0
    return seen.now_ms < watch.changed_at_ms + max(cooldown_seconds, least) * 1000


def _merge(watch: ScaleWatch, seen: LoadSnapshot, floor: int, reasons: list[str]) -> Decision | None:
    policy, count = watch.policy, len(watch.segments)
    # With one segment less, the number of consumers would cause another split.
    least = max(floor, seen.consumers if policy.split_for_consumers else 0)
    pairs = list(_mergeable(watch, seen))
    if count <= least or not pairs:
        none = "no two neighbours can be merged: they have more load, or come from many merges"
        reasons.append(none if count > least else f"at least {least} segments must stay")
        return None
    since, coldest = min(pairs, key=lambda pair: _utilization_of(pair[1], seen, policy))
    if _is_cooling_down(watch, seen, policy.merge_cooldown_seconds):  # mutant: topic-controller/no-merge-cooldown
        reasons.append("the cooldown of merges is not over")
        return None
    due = [pair for pair in pairs if pair[0] + policy.merge_window_seconds * 1000 <= seen.now_ms]
    if not due:
        names = " and ".join(str(segment.segment_id) for segment in coldest)
        reasons.append(f"segments {names} have been below the merge thresholds for {(seen.now_ms - since) // 1000} s")
        return None
    _, pair = min(due, key=lambda pair: _utilization_of(pair[1], seen, policy))
    return _due(Change.MERGE, pair, f"both were below the merge thresholds for {policy.merge_window_seconds} s")


def _mergeable(watch: ScaleWatch, seen: LoadSnapshot) -> Iterable[tuple[int, tuple[ScaledSegment, ScaledSegment]]]:
    """Yield pairs of neighbours that may be merged, each with the time since when both have little load."""
    policy = watch.policy
    for first, second in zip(watch.segments, watch.segments[1:], strict=False):
        both = seen.loads[first.segment_id].plus(seen.loads[second.segment_id])
        is_low = {first.segment_id, second.segment_id} <= seen.low_since.keys()
        # The merged segment must not reach a split threshold.
        # mutant: topic-controller/merges-what-would-split-again
        if is_low and both.below(policy.split_at) and max(first.depth, second.depth) < policy.max_dag_depth:
            yield max(seen.low_since[first.segment_id], seen.low_since[second.segment_id]), (first, second)


def _utilization_of(pair: tuple[ScaledSegment, ScaledSegment], seen: LoadSnapshot, policy: AutoScale) -> float:
    return seen.loads[pair[0].segment_id].plus(seen.loads[pair[1].segment_id]).utilization(policy.split_at)


def _due(change: Change, segments: Sequence[ScaledSegment], why: str) -> Decision:
    return Decision(change=change, segments=tuple(segment.segment_id for segment in segments), why=why)
