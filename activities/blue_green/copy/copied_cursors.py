"""Place the cursors of copied topics on green, and compare entries and cursors of both clusters."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from activities.blue_green.copy.subscription_copy import (
    Idle,
    SubscriptionCopy,
    read_managed_ledger,
    read_through_broker,
)
from clients.errors import StoreConflict, StoreUnsupported
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import CursorStats
from clients.pulsar.names import TopicName
from clients.pulsar.wire.connection import BrokerConnection
from clients.pulsar.wire.lookup import connect
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.subscription import RawSubscription
from models.blue_green.copies import CopyProof, CursorFigures
from spark.blue_green import jobs
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.positions import PositionMap, Span, count_after, joined
from spark.blue_green.spec import CopyPart, TopicCopy
from spark.blue_green.tasks import Recorded

_RANGE = re.compile(r"([(\[])(-?\d+:-?\d+)(?:\.\.|‥)(-?\d+:-?\d+)([)\]])")
_MOST_DIFFERENCES = 100


def place_cursors(copy: SubscriptionCopy, idle: Idle) -> CursorFigures:
    """Acknowledge on green what each subscription must not receive there, and check the result.

    Idle subscriptions keep exactly the entries that they have not acknowledged on blue; the record of the copy names
    them. Other subscriptions consume everything on blue, and start after the copy. A late attempt acknowledges nothing
    after a later one has opened the subscription. Brokers persist the mark-delete position at once, and later
    acknowledgements within a minute.

    Args:
        copy: both clusters.
        idle: subscriptions that continue with the copy.

    Raises:
        StoreConflict: a subscription is missing on green, or its cursor has another position.
        StoreContention: a consumer of it is connected on green.
        StoreError: a store or a broker failed; the step can be repeated.
    """
    copied = unacknowledged = after_copy = 0
    for topic in idle:
        copy.check()
        recorded = copy.record(topic)
        if recorded is None:
            continue
        positions = recorded.record.positions
        wanted = _wanted(copy, topic, idle[topic], positions)
        _acknowledge(copy, topic, positions, wanted)
        stats, _ = read_managed_ledger(copy.green, topic)
        for name, spans in wanted.items():
            if acknowledged(stats.cursors[name], positions.up_to_on_green) != spans:
                raise StoreConflict(
                    f"subscription {name} of {topic} has another position on the new cluster than expected; reset it "
                    "to the earliest message there, and try again"
                )
            copied += name in idle[topic]
            after_copy += name not in idle[topic]
            unacknowledged += len(positions) - _length(spans)
        copied_names = tuple(sorted({*idle[topic]} & wanted.keys()))
        copy.note(topic, recorded, copied_subscriptions=copied_names, copied_in=copy.ends.attempt.run_id)
    return CursorFigures(copied=copied, unacknowledged=unacknowledged, after_copy=after_copy)


def compare_entries(copy: SubscriptionCopy, topics: Collection[TopicName]) -> tuple[str, ...]:
    """Read the entries that were copied since they were compared last on both sides, and compare them.

    Returns:
        What differs; the records of topics without a difference say that they are compared.

    Raises:
        StoreError: a store or a broker failed; the step can be repeated.
    """
    differences: list[str] = []
    seen: dict[TopicName, Recorded] = {}
    compared = 0
    lock = threading.Lock()

    def next_copy(topic: TopicName) -> TopicCopy | None:
        recorded = copy.record(topic)
        if recorded is None or recorded.record.compared == len(recorded.record.positions):
            return None
        seen[topic] = recorded
        try:
            stats, ledgers = read_managed_ledger(copy.blue, topic)
        except AdminNotFound:
            # It was deleted since.
            return None
        return TopicCopy(topic, ledgers, through_broker=read_through_broker(stats))

    def take(topic: TopicName, result: CopyPart) -> None:
        nonlocal compared
        with lock:
            compared += result.entries
            if result.difference:
                differences.append(f"{topic}: {result.difference}")
            total = compared
        if not result.difference:
            copy.note(topic, seen[topic], compared=len(seen[topic].record.positions))
        copy.progress(total, total)

    jobs.compare(copy.engine, copy.ends, list(topics), next_copy, tag=copy.tag, on_part=take, check=copy.check)
    return tuple(sorted(differences)[:_MOST_DIFFERENCES])


def compare_cursors(copy: SubscriptionCopy, idle: Idle) -> CopyProof:
    """Compare what each copied subscription has left, and sum up what was compared.

    Args:
        copy: both clusters.
        idle: subscriptions whose backlog was copied; they must not have been skipped on blue yet.

    Raises:
        StoreError: a store or a broker failed; the step can be repeated. A difference is a part of the result.
    """
    differences: list[str] = []
    topics = entries = messages = size = subscriptions = unacknowledged = 0
    for topic in idle:
        copy.check()
        recorded = copy.record(topic)
        if recorded is None:
            continue
        topics += 1
        entries += recorded.record.compared
        messages += recorded.record.messages
        size += recorded.record.size
        equal, remaining, unlike = _compare_cursors(copy, topic, idle[topic], recorded.record)
        subscriptions += equal
        unacknowledged += remaining
        differences += unlike
    return CopyProof(
        topics=topics,
        entries=entries,
        messages=messages,
        size=size,
        subscriptions=subscriptions,
        unacknowledged=unacknowledged,
        differences=tuple(differences[:_MOST_DIFFERENCES]),
    )


def acknowledged(cursor: CursorStats, up_to: Callable[[EntryPosition], int]) -> list[Span]:
    """Return which of the copied entries a cursor has acknowledged, by their numbers.

    Args:
        cursor: of blue or of green.
        up_to: returns how many copied entries there are up to and with a position of that cluster.

    Raises:
        StoreUnsupported: the broker reports its single acknowledgements in another form.
    """
    spans: list[Span] = [(0, up_to(EntryPosition.parse(cursor.mark_delete_position)))]
    text = cursor.individually_deleted_messages
    ranges = list(_RANGE.finditer(text))
    if not ranges and text.strip("[] "):
        raise StoreUnsupported(f"single acknowledgements are reported in an unknown form: {text[:100]!r}")
    for opened, lower, upper, closed in (match.groups() for match in ranges):
        first, last = EntryPosition.parse(lower), EntryPosition.parse(upper)
        spans.append(
            (
                up_to(first if opened == "(" else first.moved(-1)),
                up_to(last if closed == "]" else last.moved(-1)),
            )
        )
    return joined(spans)


def count_dropped(record: CopyRecord, blue: CursorStats | None, green: CursorStats | None) -> int:
    """Return how many copied entries of a subscription green gave up, and blue still has.

    Args:
        record: record of the copy.
        blue: cursor of blue; None if it is missing.
        green: cursor of green, from which no consumer has taken messages; None if it is missing.
    """
    positions = record.positions
    done_on_blue = acknowledged(blue, positions.up_to_on_blue) if blue else [(0, len(positions))]
    done_on_green = acknowledged(green, positions.up_to_on_green) if green else [(0, len(positions))]
    return _length(joined([*done_on_blue, *done_on_green])) - _length(done_on_blue)


def _wanted(
    copy: SubscriptionCopy, topic: TopicName, idle: Collection[str], positions: PositionMap
) -> dict[str, list[Span]]:
    """Return what each subscription of a topic must have acknowledged of the copy."""
    stats, _ = read_managed_ledger(copy.blue, topic)
    durable = [*copy.blue.topics.stats(topic).durable_subscriptions]
    return {
        name: acknowledged(stats.cursors[name], positions.up_to_on_blue)
        if name in idle
        else joined([(0, len(positions))])
        for name in durable
        if name in stats.cursors
    }


def _acknowledge(
    copy: SubscriptionCopy, topic: TopicName, positions: PositionMap, wanted: dict[str, list[Span]]
) -> None:
    ends = copy.ends
    there = set(copy.green.subscriptions.names(topic))
    if missing := sorted(set(wanted) - there):
        raise StoreConflict(
            f"{topic} lacks the subscription {missing[0]} on the new cluster; provision it there first, at the "
            "earliest message"
        )
    stats, _ = read_managed_ledger(copy.green, topic)
    # An earlier run placed these after the copy, because they had consumers then.
    misplaced = {
        name
        for name, spans in wanted.items()
        if joined([*acknowledged(stats.cursors[name], positions.up_to_on_green), *spans]) != joined(spans)
    }
    # An attempt that is late already takes no subscription from clients.
    copy.fence()
    with connect(ends.green_url, topic, ends.green_access) as connection:
        for name, spans in wanted.items():
            subscription = _open(copy, connection, topic, name)
            if name in misplaced:
                subscription.reset_to(positions.green_at(0))
                subscription = _open(copy, connection, topic, name)
            begun = bool(spans) and spans[0][0] == 0
            # First, since the broker writes the first acknowledgement to disk at once.
            if begun:
                subscription.acknowledge_up_to(positions.green_at(spans[0][1] - 1))
            subscription.acknowledge(_entry_positions(positions, spans[begun:]))
            subscription.close()


def _open(copy: SubscriptionCopy, connection: BrokerConnection, topic: TopicName, name: str) -> RawSubscription:
    """Open a subscription, and check the fence while this attempt is the only consumer.

    A later attempt waits until it can open the subscription, and the broker ignores the requests of a consumer that is
    gone.
    """
    subscription = RawSubscription(connection, topic, name, notes=copy.ends.notes)
    copy.fence()  # mutant: blue-green/acknowledgements-of-a-late-attempt
    return subscription


def _entry_positions(positions: PositionMap, spans: Sequence[Span]) -> Iterator[EntryPosition]:
    return (positions.green_at(number) for number in chain.from_iterable(range(*span) for span in spans))


def _compare_cursors(
    copy: SubscriptionCopy, topic: TopicName, idle: Collection[str], record: CopyRecord
) -> tuple[int, int, list[str]]:
    positions = record.positions
    blue, ledgers = read_managed_ledger(copy.blue, topic)
    green, _ = read_managed_ledger(copy.green, topic)
    differences: list[str] = []
    last = positions.last[0] if positions.last else EntryPosition(*record.start)
    if more := count_after(ledgers, last):
        differences.append(f"{topic}: {more} entries of blue were not copied")
    if more := len(positions) - record.compared:
        differences.append(f"{topic}: {more} entries were not compared")
    equal = remaining = 0
    for name in sorted(idle):
        of_blue, of_green = blue.cursors.get(name), green.cursors.get(name)
        if of_blue is None or of_green is None:
            differences.append(f"{topic}: subscription {name} is missing on {'blue' if of_blue is None else 'green'}")
        elif (spans := acknowledged(of_blue, positions.up_to_on_blue)) != acknowledged(
            of_green, positions.up_to_on_green
        ):
            differences.append(f"{topic}: subscription {name} has other entries left on green than on blue")
        else:
            equal += 1
            remaining += len(positions) - _length(spans)
    return equal, remaining, differences


def _length(spans: Iterable[Span]) -> int:
    return sum(end - first for first, end in spans)
