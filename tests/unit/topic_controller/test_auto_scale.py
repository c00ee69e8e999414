"""Due splits and merges: floors, ceilings, hysteresis, cooldowns and windows, for any load."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.topic_controller.auto_scale import AutoScale, Load, Window
from models.topic_controller.record import Change, ControlledLayout, Mutation
from models.topic_controller.scale_decision import LoadSnapshot, ScaledSegment, ScaleVerdict, ScaleWatch, decide

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
FAST = {"interval_seconds": 60, "split_msg_rate_in_threshold": 100, "merge_msg_rate_in_threshold": 20}


class Topic:
    """A topic whose policy is asked once a minute, and whose load is spread by weights over its hashes.

    Args:
        policy: by which it scales.
        segments: how many it begins with.
    """

    def __init__(self, policy: AutoScale, segments: int = 1) -> None:
        self.policy = policy
        self.layout = ControlledLayout.created(segments, {}, 0)
        self.now = START
        self.low: dict[int, int] = {}
        self.changes: list[tuple[datetime, Change]] = []
        self.consumers = 0

    def check(self, rates: dict[int, float]) -> ScaleVerdict:
        """Check the load once, and make the change that follows from it."""
        segments = ScaledSegment.all_of(self.layout)
        loads = {segment.segment_id: Load(msg_rate_in=rates.get(segment.segment_id, 0.0)) for segment in segments}
        watch = ScaleWatch(policy=self.policy, segments=segments, changed_at_ms=self.layout.changed_at_ms)
        verdict = decide(watch, LoadSnapshot(loads=loads, consumers=self.consumers, low_since=self.low, now=self.now))
        if due := verdict.decision:
            self.change(due.change, due.segments)
            self.low = {}
        else:
            self.low = verdict.low_since
        self.now += timedelta(minutes=1)
        return verdict

    def change(self, change: Change, segments: tuple[int, ...]) -> None:
        """Split or merge now."""
        mutation = Mutation(change=change, segments=segments, epoch=self.layout.epoch)
        self.layout = self.layout.with_pending(mutation).with_commit(int(self.now.timestamp() * 1000))
        self.changes.append((self.now, change))

    def spread(self, total: float, first: float = 0.5) -> dict[int, float]:
        """Return rates by segment: a part of all on the first hash, the rest even."""
        rates = {
            segment.segment_id: total * (1 - first) * segment.hash_range.size / 65536 for segment in self.layout.active
        }
        rates[self.layout.active[0].segment_id] += total * first
        return rates


def test_load_splits_the_hottest() -> None:
    """A segment at a threshold splits, the hottest first, and the next one when the cooldown is over."""
    topic = Topic(AutoScale.model_validate({**FAST, "split_cooldown_seconds": 180}), segments=3)
    due = topic.check({0: 100, 1: 500, 2: 99}).decision
    assert due is not None
    assert (due.change, due.segments, due.why) == (
        Change.SPLIT,
        (1,),
        "segment 1 has 5.00 times the load at which it splits",
    )
    assert "the cooldown of splits is not over" in topic.check({0: 100}).why
    assert topic.check({0: 100}).decision is None
    assert topic.check({0: 99}).why.startswith("no segment is at a split threshold")
    assert topic.check({0: 100}).decision is not None


@pytest.mark.parametrize("name", ["msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out"])
def test_each_rate_counts(name: str) -> None:
    """Any of the four rates splits a segment, and keeps it from a merge."""
    policy = AutoScale(merge_window_seconds=0)
    segments = ScaledSegment.all_of(ControlledLayout.created(2, {}, 0))
    limit = getattr(policy, f"split_{name}_threshold")
    for value, change in ((limit, Change.SPLIT), (limit - 1, None), (0, Change.MERGE)):
        seen = LoadSnapshot(loads={0: Load(**{name: value}), 1: Load()}, consumers=0, low_since={}, now=START)
        due = decide(ScaleWatch(policy=policy, segments=segments), seen).decision
        assert (due.change if due else None) is change


def test_idle_neighbours_merge() -> None:
    """Two neighbours merge when both were below the thresholds for the whole window, down to the floor."""
    policy = AutoScale(min_segments=2, merge_window_seconds=300, merge_cooldown_seconds=600)
    topic = Topic(policy, segments=4)
    for _ in range(60):
        topic.check({})
    assert [at - START for at, _ in topic.changes] == [timedelta(minutes=5), timedelta(minutes=15)]
    assert len(topic.layout.active) == 2
    assert "at least 2 segments must stay" in topic.check({}).why


def test_a_burst_restarts_the_window() -> None:
    """After one check with load a merge waits for the whole window again."""
    topic = Topic(AutoScale.model_validate(FAST), segments=2)
    for minute in range(12):
        topic.check({0: 21} if minute == 4 else {})
    assert [at - START for at, _ in topic.changes] == [timedelta(minutes=10)]


def test_segments_that_would_split_again_are_not_merged() -> None:
    """Two loads that together reach a split threshold are not merged, however near the thresholds are."""
    policy = {"split_msg_rate_in_threshold": 100, "merge_msg_rate_in_threshold": 90, "merge_window_seconds": 0}
    topic = Topic(AutoScale.model_validate(policy), segments=2)
    assert topic.check({0: 60, 1: 40}).decision is None
    assert topic.check({0: 59, 1: 40}).decision is not None


def test_merges_in_a_row_have_an_end() -> None:
    """A segment that comes from as many merges as may be is not merged again."""
    topic = Topic(AutoScale(max_dag_depth=1, merge_window_seconds=0, merge_cooldown_seconds=0), segments=4)
    for _ in range(20):
        topic.check({})
    assert len(topic.layout.active) == 2
    assert "come from many merges" in topic.check({}).why


def test_consumers_split() -> None:
    """An ordered subscription with more consumers than segments has more segments, if the policy says so."""
    topic = Topic(AutoScale(max_segments=3, split_cooldown_seconds=0, merge_window_seconds=0))
    topic.consumers = 5
    for _ in range(10):
        topic.check({})
    assert len(topic.layout.active) == 3
    topic.policy = AutoScale(split_for_consumers=False, merge_window_seconds=0)
    topic.now += timedelta(hours=1)
    assert topic.check({}).decision is not None


def test_changes_by_hand_begin_the_cooldowns() -> None:
    """A split or a merge by hand begins both cooldowns, also where what it sealed was pruned since."""
    policy = AutoScale.model_validate({**FAST, "split_cooldown_seconds": 180, "merge_cooldown_seconds": 240})
    for change, segments in ((Change.MERGE, (0, 1)), (Change.SPLIT, (0,))):
        topic = Topic(policy, segments=2)
        topic.change(change, segments)
        topic.layout = topic.layout.without_segments(segments, 0)
        hot = topic.layout.active[0].segment_id
        reasons = [topic.check({hot: 500}).why for _ in range(3)]
        assert all("the cooldown of splits is not over" in why for why in reasons), reasons
        due = topic.check({hot: 500}).decision
        assert due is not None
        assert (due.change, due.segments) == (Change.SPLIT, (hot,))


@pytest.mark.parametrize("policy", [{"minSegments": 4}, {"splitMsgRateInThreshold": 100}])
def test_a_dry_run_has_a_cooldown(policy: dict[str, object]) -> None:
    """A dry run, which changes nothing, decides the same again after an interval at the earliest."""
    dry = AutoScale.model_validate({"dryRun": True, "splitCooldownSeconds": 0, "mergeMsgRateInThreshold": 5, **policy})
    segments = ScaledSegment.all_of(ControlledLayout.created(1, {}, 0))
    seen = LoadSnapshot(loads={0: Load(msg_rate_in=200)}, consumers=0, low_since={}, now=START)
    for seconds, is_due in ((59, False), (60, True)):
        watch = ScaleWatch(policy=dry, segments=segments, changed_at_ms=seen.now_ms - seconds * 1000)
        assert (decide(watch, seen).decision is not None) is is_due


def test_a_new_topic_has_no_cooldown() -> None:
    """The creation of a topic is not a change: its segments may split at the first look."""
    topic = Topic(AutoScale.model_validate(FAST))
    topic.layout = ControlledLayout.created(1, {}, int(topic.now.timestamp() * 1000))
    assert topic.check({0: 500}).decision is not None


def test_a_window_of_more_segments() -> None:
    """Segments are split before a peak without a pause, and are not merged before its end, in the zone's own time."""
    window = Window(open=("0 7 * * 1-5",), zone="Europe/Berlin", duration=timedelta(hours=2), min_segments=8)
    for text, inside in (
        ("2026-03-02T06:00", True),
        ("2026-03-02T05:59", False),
        ("2026-03-02T07:59", True),
        ("2026-03-02T08:00", False),
        ("2026-03-30T05:00", True),  # summer time
        ("2026-03-30T04:59", False),
        ("2026-03-01T06:30", False),  # a Sunday
    ):
        assert window.is_open(datetime.fromisoformat(text).replace(tzinfo=UTC)) is inside, text
    # Summer time begins and ends within this one.
    window = window.model_copy(update={"open": ("0 1 * * *",)})
    for text, inside in (
        ("2026-03-29T00:00", True),
        ("2026-03-29T01:59", True),
        ("2026-03-29T02:00", False),
        ("2026-10-24T23:00", True),
        ("2026-10-25T00:59", True),
        ("2026-10-25T01:00", False),
    ):
        assert window.is_open(datetime.fromisoformat(text).replace(tzinfo=UTC)) is inside, text
    window = window.model_copy(update={"open": ("0 7 * * 1-5",)})
    topic = Topic(AutoScale(windows=(window,)))
    topic.now = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
    for _ in range(110):
        topic.check({})
    assert [change for _, change in topic.changes] == [Change.SPLIT] * 7
    assert {segment.hash_range.size for segment in topic.layout.active} == {8192}
    assert "nothing is merged in a window" in topic.check({}).why
    for _ in range(30):
        topic.check({})
    assert topic.changes[-1][1] is Change.MERGE


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"minSegments": 3, "maxSegments": 2}, "minSegments 3 is more than maxSegments 2"),
        ({"mergeMsgRateInThreshold": 10_000}, "is not below its split threshold"),
        ({"windows": [{"open": ["0 7 * *"], "duration": "2h", "minSegments": 2}]}, "invalid cron expression"),
        ({"windows": [{"open": ["0 7 * * *"], "duration": "2h", "minSegments": 65}]}, "minSegments 65 is more than 64"),
        (
            {"windows": [{"open": ["0 7 * * *"], "duration": "2h", "minSegments": 2, "zone": "!"}]},
            "unknown time zone",
        ),
        ({"splitThreshold": 3}, "Extra inputs are not permitted"),
    ],
)
def test_contradictory_policies_are_refused(given: dict[str, object], why: str) -> None:
    """A policy whose values contradict each other is refused."""
    with pytest.raises(ValidationError, match=why):
        AutoScale.model_validate(given)


def test_brokers_names() -> None:
    """A policy of Pulsar 5 is one here, and reads back as it is written."""
    policy = AutoScale.model_validate_json('{"enabled":true,"maxSegments":8,"mergeBytesRateOutThreshold":5}')
    assert (policy.max_segments, policy.merge_bytes_rate_out_threshold) == (8, 5)
    assert AutoScale.model_validate_json(policy.model_dump_json()) == policy
    assert '"maxSegments":8' in policy.model_dump_json()


@st.composite
def policies(draw: st.DrawFn) -> AutoScale:
    """Return floors, ceilings, cooldowns and windows of any length."""
    least, times = draw(st.integers(1, 6)), st.integers(0, 600)
    limits = {"min_segments": least, "max_segments": least + draw(st.integers(0, 10))}
    names = ("split_cooldown_seconds", "merge_cooldown_seconds", "merge_window_seconds")
    return AutoScale.model_validate({**FAST, **limits, **{name: draw(times) for name in names}})


@given(policy=policies(), totals=st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 1)), max_size=60))
def test_any_load(policy: AutoScale, totals: list[tuple[float, float]]) -> None:
    """Under any load a topic never exceeds the ceiling or goes below the floor, and no cooldown is cut short."""
    topic = Topic(policy)
    for total, first in totals:
        before = len(topic.layout.active)
        due = topic.check(topic.spread(total, first)).decision
        count = len(topic.layout.active)
        assert count <= policy.max_segments
        assert due is None or due.change is Change.SPLIT or count >= policy.min_segments
        # What is below the floor splits at once.
        assert before >= policy.min_segments or count == before + 1
    split, merge = (
        timedelta(seconds=seconds) for seconds in (policy.split_cooldown_seconds, policy.merge_cooldown_seconds)
    )
    above = topic.changes[policy.min_segments - 1 :]
    for number, (at, change) in enumerate(above):
        assert all(at - then >= (split if change is Change.SPLIT else merge) for then, _ in above[:number])


@given(policy=policies(), total=st.floats(0, 3000), first=st.floats(0, 1), segments=st.integers(1, 8))
def test_constant_load_leads_to_a_final_layout(policy: AutoScale, total: float, first: float, segments: int) -> None:
    """Under a constant load the layout stops changing, and no segment is split and merged in turn."""
    topic = Topic(policy, segments)
    for _ in range(400):
        topic.check(topic.spread(total, first))
    final = len(topic.changes)
    for _ in range(200):
        topic.check(topic.spread(total, first))
    assert len(topic.changes) == final
