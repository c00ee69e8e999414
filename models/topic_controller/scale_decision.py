"""Which split or merge is due by a topic's policy; nothing here asks anybody, or has a clock."""

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
        segment_id: its id.
        hash_range: of its keys.
        depth: merges in a row from which it comes, as far as the layout still shows.
    """

    segment_id: int
    hash_range: HashRange
    depth: int = 0

    @property
    def descriptor(self) -> str:
        """Its part of the topic's name."""
        return f"{self.hash_range}-{self.segment_id}"

    @classmethod
    def all_of(cls, layout: SegmentLayout) -> tuple[Self, ...]:
        """The active segments of a layout, in the order of their hashes."""
        depths: dict[int, int] = {}
        # A child's id is always the higher one.
        for number, one in sorted(layout.segments.items()):
            before = max((depths[parent] for parent in one.parent_ids), default=0)
            depths[number] = before + (len(one.parent_ids) > 1)
        return tuple(
            cls(segment_id=one.segment_id, hash_range=one.hash_range, depth=depths[one.segment_id])
            for one in layout.active
        )


class Decision(Result):
    """A change that is due.

    Attributes:
        change: split or merge.
        segments: which ones.
        why: a sentence.
    """

    change: Change
    segments: tuple[int, ...]
    why: str


class ScaleWatch(Result):
    """What is looked at.

    Attributes:
        policy: the topic's.
        segments: active ones, in the order of their hashes.
        changed_at_ms: when segments last split or merged, by the policy or by a person, in milliseconds since 1970; 0
            for never. All cooldowns count from it.
    """

    policy: AutoScale
    segments: tuple[ScaledSegment, ...]
    changed_at_ms: int = 0


class ScaleVerdict(NamedTuple):
    """What follows from one look.

    Attributes:
        decision: the change that is due; None for none.
        why: none is due.
        low_since: since when segments are below the merge thresholds, in milliseconds since 1970, by id.
    """

    decision: Decision | None
    why: str
    low_since: dict[int, int]


class LoadSnapshot(NamedTuple):
    """What one look has shown.

    Attributes:
        loads: by id of the segment.
        consumers: the most that an ordered subscription has.
        low_since: since when segments are below the merge thresholds, as the look before found, by id.
        now: the time of the look.
    """

    loads: Mapping[int, Load]
    consumers: int
    low_since: Mapping[int, int]
    now: datetime

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now.timestamp() * 1000)


def decide(watch: ScaleWatch, seen: LoadSnapshot) -> ScaleVerdict:
    """What is due: first floors, then splits, then merges; one change at a time."""
    policy, segments = watch.policy, watch.segments
    open_windows = [window for window in policy.windows if window.contains(seen.now)]
    floor = min(max([policy.min_segments, *(window.min_segments for window in open_windows)]), policy.max_segments)
    low = {segment.segment_id for segment in segments if seen.loads[segment.segment_id].below(policy.merge_below)}
    low_since = {number: seen.low_since.get(number, seen.now_ms) for number in low}
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
        reasons.append(f"{count} segments are the most that may be")
        return None

    def heat(one: ScaledSegment) -> tuple[float, int]:
        return seen.loads[one.segment_id].heat(policy.split_at), one.hash_range.size

    hottest = max(divisible, key=heat)
    cools = _cools(watch, seen, policy.split_cooldown_seconds)
    if count < floor and not (policy.dry_run and cools):
        widest = max(divisible, key=lambda one: (one.hash_range.size, heat(one)))
        return _due(Change.SPLIT, [widest], f"{count} segments are below {floor}")
    if heat(hottest)[0] >= 1:
        why = f"segment {hottest.segment_id} has {heat(hottest)[0]:.2f} times the load at which it splits"
    elif policy.split_for_consumers and seen.consumers > count:
        why = f"{seen.consumers} consumers share {count} segments"
    else:
        reasons.append("no segment is at a split threshold")
        return None
    if cools:
        reasons.append(f"{why}, and the cooldown of splits is not over")
        return None
    return _due(Change.SPLIT, [hottest], why)


def _cools(watch: ScaleWatch, seen: LoadSnapshot, cooldown_seconds: int) -> bool:
    """Return whether a cooldown is not over; a dry run, after which the same is due, has one of a look at least."""
    policy = watch.policy
    least = policy.interval_seconds if policy.dry_run else 0
    return seen.now_ms < watch.changed_at_ms + max(cooldown_seconds, least) * 1000


def _merge(watch: ScaleWatch, seen: LoadSnapshot, floor: int, reasons: list[str]) -> Decision | None:
    policy, count = watch.policy, len(watch.segments)
    # With one less, consumers would have it split again.
    least = max(floor, seen.consumers if policy.split_for_consumers else 0)
    pairs = list(_mergeable(watch, seen))
    if count <= least or not pairs:
        none = "no two neighbours can be merged: they have more load, or come from many merges"
        reasons.append(none if count > least else f"{least} segments stay at least")
        return None
    since, coldest = min(pairs, key=lambda pair: _heat_of(pair[1], seen, policy))
    if _cools(watch, seen, policy.merge_cooldown_seconds):  # mutant: topic-controller/no-merge-cooldown
        reasons.append("the cooldown of merges is not over")
        return None
    ripe = [pair for pair in pairs if pair[0] + policy.merge_window_seconds * 1000 <= seen.now_ms]
    if not ripe:
        names = " and ".join(str(one.segment_id) for one in coldest)
        reasons.append(f"segments {names} are below the merge thresholds for {(seen.now_ms - since) // 1000} s")
        return None
    _, pair = min(ripe, key=lambda pair: _heat_of(pair[1], seen, policy))
    return _due(Change.MERGE, pair, f"both are below the merge thresholds for {policy.merge_window_seconds} s")


def _mergeable(watch: ScaleWatch, seen: LoadSnapshot) -> Iterable[tuple[int, tuple[ScaledSegment, ScaledSegment]]]:
    """Neighbours that may become one, with the time since when both have little load."""
    policy = watch.policy
    for one, other in zip(watch.segments, watch.segments[1:], strict=False):
        both = seen.loads[one.segment_id].plus(seen.loads[other.segment_id])
        is_low = {one.segment_id, other.segment_id} <= seen.low_since.keys()
        # Together they must not be at what splits them again.
        # mutant: topic-controller/merges-what-would-split-again
        if is_low and both.below(policy.split_at) and max(one.depth, other.depth) < policy.max_dag_depth:
            yield max(seen.low_since[one.segment_id], seen.low_since[other.segment_id]), (one, other)


def _heat_of(pair: tuple[ScaledSegment, ScaledSegment], seen: LoadSnapshot, policy: AutoScale) -> float:
    return seen.loads[pair[0].segment_id].plus(seen.loads[pair[1].segment_id]).heat(policy.split_at)


def _due(change: Change, segments: Sequence[ScaledSegment], why: str) -> Decision:
    return Decision(change=change, segments=tuple(segment.segment_id for segment in segments), why=why)
