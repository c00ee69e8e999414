"""The limit that holds writes back where brokers read connections late again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.topics import report_blue_backlog
from activities.blue_green.write_limit import bytes_per_round, limit_for_hold_time, wait_until_quiet
from activities.lifecycle.context import ActivityContext
from clients.pulsar.admin.topics import Client, InternalStats, SubscriptionStats, TopicStats
from clients.pulsar.names import TopicName
from models.defects import has_defect
from models.lifecycle.status import ReadingName
from models.releases import parse_release


class _BusyBookies:
    """A topic that takes no messages, of which bookies have not confirmed one in some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def stats(self, _topic: TopicName) -> TopicStats:
        return TopicStats(msg_in_counter=5)

    def internal_stats(self, _topic: TopicName) -> InternalStats:
        self.looks -= 1
        return InternalStats(pending_add_entries_count=int(self.looks >= 0))


@pytest.mark.parametrize(("looks", "quiet"), [(0, True), (2, True), (1_000, False)])
def test_messages_that_bookies_have_not_confirmed(looks: int, *, quiet: bool) -> None:
    """A topic is quiet once bookies have confirmed what it took: one that is ended before is fenced."""
    topic, topics = TopicName.parse("persistent://t/n/x"), _BusyBookies(looks)

    def each(items: Sequence[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return list(map(work, items))

    seconds = timedelta(minutes=10) if quiet else timedelta(seconds=0.1)
    task = SimpleNamespace(
        blue=SimpleNamespace(admin=SimpleNamespace(topics=topics)),
        context=ActivityContext(),
        each=each,
        input=SimpleNamespace(quiesce_timeout=seconds),
    )
    guard = cast("NamespaceGuard", object())
    waited = wait_until_quiet(cast("BlueGreenTask", task), {guard: [topic]}, time.monotonic())
    cause = f"{topic} (bookies have not confirmed its last messages: check their disks)"
    assert waited.busy == (() if quiet else (cause,))
    assert not quiet or topics.looks == -1


@pytest.mark.parametrize(
    ("rounds", "limit"),
    [
        ([], 1),
        ([0.0, 0.0], 1),
        ([9.0], 1),
        ([150.0, 0.0, 3000.0], 10),
        ([1_500_000.0], 100_000),
    ],
)
def test_limit_by_sizes(rounds: list[float], limit: int) -> None:
    """The topic with the smallest messages is held back for the whole time; without traffic the limit is the lowest."""
    assert limit_for_hold_time(rounds, 15.0) == limit


def test_releases_that_unblock_producers_at_once() -> None:
    """Only blue of an old release needs that limit (#25502)."""
    versions = ("4.0.8", "4.0.10", "4.2.0", "4.2.4", "5.0.1")
    late = [version for version in versions if has_defect(parse_release(version), "LIMIT_LIFTED_LATE")]
    assert late == ["4.0.8", "4.2.0"]


def test_a_round_counts_current_traffic() -> None:
    """Large messages of the past do not count, whole batches do, and each producer sends once."""
    stored = InternalStats(number_of_entries=100, entries_added_counter=100)
    large = TopicStats(storage_size=50_000_000, msg_in_counter=100)
    busy = Client(msg_rate_in=10.0, msg_throughput_in=1500.0)
    assert bytes_per_round(large.model_copy(update={"publishers": (busy,)}), stored, 15.0) == 150.0
    assert bytes_per_round(large.model_copy(update={"publishers": (busy, busy)}), stored, 15.0) == 300.0
    assert bytes_per_round(TopicStats(msg_in_counter=1000, publishers=(busy,)), stored, 15.0) == 1500.0


def test_a_round_of_producers_that_sent_nothing_lately() -> None:
    """Without messages in the last minute the average of what is stored counts."""
    stats = TopicStats(storage_size=20_000, publishers=(Client(), Client()))
    assert bytes_per_round(stats, InternalStats(number_of_entries=10), 15.0) == 2000.0
    assert bytes_per_round(stats, InternalStats(), 15.0) == 0.0


def test_a_round_of_a_producer_that_rarely_sends() -> None:
    """A producer that rarely sends counts as one that sends once."""
    rare = Client(msg_rate_in=0.01, msg_throughput_in=1.0)
    assert bytes_per_round(TopicStats(publishers=(rare,)), InternalStats(), 15.0) == 100.0


def test_a_backlog_below_zero() -> None:
    """A broker that counts wrongly hides no other backlog, and the report of the step is still possible (#5543)."""
    stats = TopicStats(
        subscriptions={"wrong": SubscriptionStats(msg_backlog=-2), "slow": SubscriptionStats(msg_backlog=1)}
    )
    wrong = TopicStats(subscriptions={"wrong": SubscriptionStats(msg_backlog=-2)})
    context = ActivityContext()
    for topics, backlog in (([stats, wrong], 1), ([wrong], 0)):
        assert report_blue_backlog(context, topics) == backlog
        reading = next(reading for reading in context.report().readings if reading.name is ReadingName.BACKLOG)
        assert reading.value == backlog
