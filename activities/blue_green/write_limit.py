"""The limit on what may be sent to a namespace while it is flipped: set, waited for, and put back.

A broker that terminates a topic amid writes fences it, so that its clients find neither blue nor green for minutes, or
tells producers that the topic has ended for good (seen). With one byte per second each producer gets one message
through, and its connection is not read again for as long as that message has bytes, or until the limit is changed while
the topic is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.policies import AUTO_CREATION, rate, restore_policy
from activities.blue_green.topics import Traffic, check_topic, is_terminated, report_blue_backlog, topics_of, traffic_of
from activities.pulsar.overridden_policies import (
    OverriddenPolicy,
    is_overridden,
    override_policies,
    rewrite_policies,
    stored_policy,
)
from clients.errors import StoreConflict, StoreContention, StoreNotFound
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.admin.topics import EntryHead, InternalStats, TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import is_held_back
from models.blue_green.results import Quiet
from models.defects import has_defect
from models.lifecycle.failures import some
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import ledger_lengths

_LOOK_EVERY = 0.25
_SAME_LOOKS = 3
_NAMED = 10
_NOT_CONFIRMED = " (bookies have not confirmed what it took: look at their disks)"
# The defect by which a removed limit still holds producers back.
_LIMIT_LIFTED_LATE = "LIMIT_LIFTED_LATE"

# Each time, every producer gets one message through.
_TELL_EVERY = 3.0


def throttle(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Set the limit, after what stood before was noted; harmless when done twice."""
    override_policies(guard, throttled_rate(task, guard))


def hold_writes(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
    """As in QUIESCE, for topics that are not terminated; returns since when writes are seen to be held back."""
    since = time.monotonic()
    left = {
        guard: [topic for topic in topics_of(task.blue, guard.namespace) if not is_terminated(task.blue, topic)]
        for guard in guards
    }
    left = {guard: names for guard, names in left.items() if names}
    for guard in left:
        throttle(task, guard)
    if left:
        quiet, since = wait_until_quiet_since(task, left, time.monotonic())
        if quiet.busy:
            raise StoreContention(f"topics take messages in spite of the limit: {', '.join(quiet.busy)}")
    return since


def throttled_rate(task: AnyBlueGreenTask, guard: NamespaceGuard) -> OverriddenPolicy[PublishRate]:
    """Return the limit of a namespace while it is flipped: the same for each attempt."""
    cluster = task.input.cluster
    if noted := guard.require().publish_rate:
        return rate(cluster, PublishRate.model_validate(noted.ours).publish_throttling_rate_in_byte)
    limit = task.input.throttle_bytes
    if has_defect(task.blue_release, _LIMIT_LIFTED_LATE):
        topics = topics_of(task.blue, guard.namespace)
        limit = max(limit, limit_for_hold_time(task.each(topics, lambda topic: _round(task, topic)), _hold_of(task)))
    return rate(cluster, limit)


def limit_for_hold_time(rounds: Iterable[float], seconds: float) -> int:
    """Return the bytes per second at which each topic is held back for some time, and none for much longer.

    Where brokers do not read a connection before the limit allows it, although that is gone (#25502), each byte that a
    topic takes after the limit was set holds its producers back for 1/limit seconds.

    Args:
        rounds: bytes that each topic takes if each of its producers sends once; 0 for one that takes none.
        seconds: how long the topic with the smallest round is held back.
    """
    return max(1, int(min(filter(None, rounds), default=0.0) / seconds))


def _hold_of(task: AnyBlueGreenTask) -> float:
    return task.input.quiesce_timeout.total_seconds()


def bytes_per_round(stats: TopicStats, inside: InternalStats, seconds: float) -> float:
    """Return the bytes of one entry of each producer that is likely to send while writes are held back.

    Entries of the last minute count. The average of all that is stored is taken only where there are none: it may be
    far from what is sent now.

    Args:
        stats: of the topic.
        inside: of its managed ledger.
        seconds: how long writes are held back.
    """
    rate = sum(client.msg_rate_in for client in stats.publishers)
    if rate:  # mutant: blue-green/limit-by-what-is-stored
        batch = max(1.0, stats.msg_in_counter / inside.entries_added_counter) if inside.entries_added_counter else 1.0
        entry = sum(client.msg_throughput_in for client in stats.publishers) / rate * batch
    else:
        entry = stats.storage_size / inside.number_of_entries if inside.number_of_entries else 0.0
    likely = sum(min(1.0, client.msg_rate_in * seconds) for client in stats.publishers)
    return entry * max(1.0, likely)


def _round(task: AnyBlueGreenTask, topic: TopicName) -> float:
    stats = check_topic(task.blue, topic).stats
    if stats is None or not stats.publishers:
        return 0.0
    return bytes_per_round(stats, task.blue.topics.internal_stats(topic), _hold_of(task))


def lift_publish_limit(task: AnyBlueGreenTask, guard: NamespaceGuard) -> str:
    """Put the namespace's own limit back, and let clients create topics again; see `restore_policy`."""
    kept = (restore_policy(task, guard, rate(task.input.cluster)), restore_policy(task, guard, AUTO_CREATION))
    return "; ".join(filter(None, kept))


def lift_limit_if_terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> str:
    """Do the same, unless the namespace has its flag, and topics that brokers will still end: then writes wait."""
    if is_held_back(guard.require()) and read_flag(guard.store, guard.namespace):
        topics = topics_of(task.blue, guard.namespace)
        if not all(task.each(topics, lambda topic: is_terminated(task.blue, topic))):
            return ""
    return lift_publish_limit(task, guard)


def require_quiet(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
    """Right before the flag: the limit still holds, nothing is sent, and no message has arrived in part only.

    Returns:
        Since when that was seen, as `require_seen_quiet` takes it.

    Raises:
        StoreConflict: somebody has changed the limit, or writes are under way in spite of it, or a producer has sent a
            part of a message, or there are too many topics to know that of all at once.
    """
    for guard in guards:
        if not is_overridden(guard, rate(task.input.cluster)):
            now = stored_policy(guard, rate(task.input.cluster))
            raise StoreConflict(
                f"the publish rate of {guard.namespace} is {now.body() if now else 'none'}, and not what the migration "
                "set to hold writes back: somebody has changed it, so nothing is flipped"
            )
    topics = topics_by_guard(task, guards)

    def check() -> None:
        require_whole_messages(task, [topic for names in topics.values() for topic in names])

    # mutant: blue-green/message-that-is-cut-in-two
    quiet, since = wait_until_quiet_since(task, topics, time.monotonic(), same_looks=1, check=check)
    if quiet.busy:
        raise StoreConflict(f"topics take messages in spite of the limit, so nothing is flipped: {some(quiet.busy)}")
    if (seconds := time.monotonic() - since) > _valid_for(task):  # mutant: blue-green/check-that-takes-too-long
        raise StoreConflict(
            f"it takes {seconds:.0f} s to see that {sum(map(len, topics.values()))} topics take no messages, and the "
            f"limit may hold writes back for {task.input.quiesce_timeout.total_seconds():.0f} s only, so nothing is "
            "flipped. Move fewer namespaces in one batch (waves.batch_size), or give a longer quiesce_timeout"
        )
    return since


def require_seen_quiet(task: AnyBlueGreenTask, since: float) -> None:
    """Check, between what is read and the write of a flag, that no writes were seen a short time ago.

    A worker may have been frozen since it looked, and each producer gets a message through now and then.

    Args:
        task: the step.
        since: see `require_quiet`.

    Raises:
        StoreContention: it is too long ago; another attempt looks again.
    """
    if (seconds := time.monotonic() - since) > _valid_for(task):
        raise StoreContention(f"that writes are held back was seen {seconds:.0f} s ago; it is checked again")


def _valid_for(task: AnyBlueGreenTask) -> float:
    """Seconds for which it holds that no writes were seen: brokers need some of the limit's time to end topics."""
    return task.input.quiesce_timeout.total_seconds() / 2


def topics_by_guard(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> dict[NamespaceGuard, list[TopicName]]:
    """The topics of some namespaces of blue."""
    return {guard: topics_of(task.blue, guard.namespace) for guard in guards}


def wait_until_quiet(
    task: AnyBlueGreenTask,
    topics: Mapping[NamespaceGuard, Sequence[TopicName]],
    begun: float,
) -> Quiet:
    """Wait until nothing is sent to any of these topics of blue; gives up after `quiesce_timeout`.

    Brokers whose topics stay busy are told of the limit again.
    """
    return wait_until_quiet_since(task, topics, begun)[0]


def wait_until_quiet_since(
    task: AnyBlueGreenTask,
    topics: Mapping[NamespaceGuard, Sequence[TopicName]],
    begun: float,
    *,
    same_looks: int = _SAME_LOOKS,
    check: Callable[[], None] | None = None,
) -> tuple[Quiet, float]:
    """The same, with the time at which the last look began; see `require_seen_quiet`.

    Args:
        task: the step.
        topics: of blue, by namespace.
        begun: when writes were held back.
        same_looks: how many looks in a row must see nothing new.
        check: called after each look but the last. It sees all that was sent until now if the next look finds the
            counters of the look before it.
    """
    end = begun + task.input.quiesce_timeout.total_seconds()
    every = [topic for names in topics.values() for topic in names]
    before: dict[TopicName, Traffic] = {}
    same, looks, told, since = 0, 0, time.monotonic(), begun
    busy: list[TopicName] = []
    why = ""
    while same < same_looks:
        looks += 1
        since = time.monotonic()
        stats = [look.stats for look in task.each(every, lambda topic: check_topic(task.blue, topic))]
        report_blue_backlog(task.context, filter(None, stats))
        now = {topic: traffic_of(one) if one else Traffic() for topic, one in zip(every, stats, strict=True)}
        busy = [topic for topic in every if before.get(topic, (-1,))[0] != now[topic].sent]
        # Who drains is let do so for a while: a consumer that reaches the end just as the topic is terminated is told
        # that the topic has ended, and not where it continues.
        draining = any(0 < now[topic].backlog < before[topic].backlog for topic in every if topic in before)
        patient = time.monotonic() < begun + (end - begun) / 2
        same = 0 if busy or (draining and patient) else same + 1
        why = ""
        if same >= same_looks:
            # A message counts as received before bookies have it. A topic that is ended meanwhile is fenced.
            busy = _unconfirmed(task, [topic for topic, one in zip(every, stats, strict=True) if one])
            same = 0 if busy else same  # mutant: blue-green/quiet-before-bookies-have-confirmed
            why = _NOT_CONFIRMED if busy else ""
        # One look alone tells of no messages, however long a broker took to answer it.
        if busy and looks > 1 and time.monotonic() > end:
            break
        before = now
        if busy:
            task.context.waiting_for(WaitKind.CLIENTS, f"writes to become quiet: {some(busy)}{why}")
            if time.monotonic() > told + _TELL_EVERY:
                _tell_again(topics, busy)  # mutant: blue-green/broker-that-missed-the-limit
                told = time.monotonic()
        if check is not None and same < same_looks:
            # What bookies have not confirmed cannot be read yet, so that the next look must not be the last.
            if unread := _unconfirmed(task, [topic for topic, one in zip(every, stats, strict=True) if one]):
                # mutant: blue-green/chunks-that-are-not-confirmed
                before = {topic: seen for topic, seen in before.items() if topic not in unread}
            else:
                check()
        task.context.pause(_LOOK_EVERY)
    task.context.clear_waiting()
    named = tuple(f"{topic}{why}" for topic in busy[:_NAMED]) if same < same_looks else ()
    return Quiet(seconds=round(time.monotonic() - begun, 3), busy=named, checks=looks), since


def _unconfirmed(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[TopicName]:
    """Return the topics with messages that bookies have not confirmed."""

    def count(topic: TopicName) -> int:
        # It is gone, or was unloaded, which closes its ledger.
        with suppress(AdminNotFound, AdminServerError):
            return task.blue.topics.internal_stats(topic).pending_add_entries_count
        return 0

    counts = task.each(topics, count)
    return [topic for topic, waiting in zip(topics, counts, strict=True) if waiting]


def _tell_again(topics: Mapping[NamespaceGuard, Sequence[TopicName]], busy: Sequence[TopicName]) -> None:
    for guard in topics:
        # Where the namespace is gone, so are its writers.
        with suppress(StoreNotFound):
            if not set(busy).isdisjoint(topics[guard]):
                rewrite_policies(guard)


# Messages in chunks of which a part is stored -------------------------------------------------------------------------

# A limit holds a producer back between two chunks. If its topic was ended then, the other chunks would be sent to
# green. Brokers count chunks once a minute, so what they count does not tell of the last ones.


_FEWEST, _MOST = 32, 256
"""Entries to read at the end of a topic: with writes held back, few follow the last entry of any producer."""

# Clients give up long before, and clocks differ by less.
_LONG_AGO = timedelta(hours=1)


def require_whole_messages(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> None:
    """Look at the ends of all topics of a batch that have producers.

    Raises:
        StoreConflict: a producer has sent a part of a message, or may have, and the rest would go to green.
    """
    read: list[TopicName] = []

    def check(topic: TopicName) -> str:
        why = _problem(task, topic)
        read.append(topic)
        return why

    task.context.measure(ProgressTask.OPERATE, ProgressUnit.TOPICS, len(topics), lambda: len(read))
    task.context.waiting_for(WaitKind.CLIENTS, f"messages in chunks: the ends of {len(topics):,} topics are read")
    problems = zip(topics, task.each(topics, check), strict=True)
    if cut := [f"{topic}: {why}" for topic, why in problems if why]:
        raise StoreConflict(
            f"messages have arrived in part, and would be cut in two, so nothing is flipped: {some(cut)}"
        )
    task.context.clear_progress()
    task.context.clear_waiting()


def _problem(task: AnyBlueGreenTask, topic: TopicName) -> str:
    """Return which message of a topic has arrived in part, or may have, in words; empty for none."""
    stats = check_topic(task.blue, topic).stats
    if stats is None or not stats.publishers:  # mutant: blue-green/chunk-of-a-topic-that-was-loaded-again
        return ""
    # Its counter may be 0: a topic that was loaded again has stored the first chunk before.
    try:
        ledgers = ledger_lengths(task.blue.topics.internal_stats(topic))
        heads = (task.blue.topics.entry_head(topic, position) for position in _backwards(ledgers))
        return unfinished_of(heads, {client.producer_name for client in stats.publishers})
    except AdminNotFound:
        # It, or what retention kept of it, is gone.
        return ""


def unfinished_of(heads: Iterator[EntryHead], producers: set[str]) -> str:
    """Return which last entry of a producer waits for the rest of its message, in words; empty for none.

    A producer sends the chunks of a message one after the other, so that one without an end that is followed by another
    message of the same producer was given up. If some send in chunks, and the last entry of others is too far back to
    be found, these count as unknown.

    Args:
        heads: of entries, the last one first.
        producers: names of those that are connected.
    """
    waiting, oldest = set(producers), datetime.now(UTC) - _LONG_AGO
    limit = min(max(_FEWEST, 2 * len(producers)), _MOST)
    chunks = False
    for number, head in enumerate(heads, 1):
        if head.published is not None and head.published < oldest:
            return ""
        if head.producer in waiting and head.is_unfinished:  # mutant: blue-green/unfinished-messages
            return f"{head.chunk + 1} of {head.chunks} by {head.producer}"
        waiting.discard(head.producer)
        chunks = chunks or head.chunks > 1
        if not waiting:
            return ""
        if number == limit:
            # mutant: blue-green/chunks-that-are-too-far-back
            return f"unknown of {some(sorted(waiting))}, before the last {limit} entries" if chunks else ""
    return ""


def _backwards(ledgers: Sequence[LedgerLength]) -> Iterator[tuple[int, int]]:
    for ledger_id, entries in reversed(ledgers):
        for entry_id in reversed(range(entries)):
            yield ledger_id, entry_id
