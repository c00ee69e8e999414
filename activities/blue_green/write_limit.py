"""The publish limit of a namespace while it flips: set it, wait until writes stop, and restore the previous limit.

A broker that terminates a topic during writes fences it, so that clients are without blue and green for minutes, or
tells producers that the topic has ended (seen). With a limit of 1 byte/s each producer sends one message. Then the
broker stops reading the connection, for one second per byte of that message, or until the limit is changed while the
topic is loaded.
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
from models.lifecycle.failures import summarize
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import ledger_lengths

_CHECK_EVERY = 0.25
_SAME_CHECKS = 3
_NAMED = 10
_NOT_CONFIRMED = " (bookies have not confirmed its last messages: check their disks)"
# Defect: producers still wait after the limit was removed.
_LIMIT_LIFTED_LATE = "LIMIT_LIFTED_LATE"

# After each rewrite every producer can send one message.
_REWRITE_EVERY = 3.0


def throttle(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Set the limit, after the previous one was noted; it can be repeated."""
    override_policies(guard, throttled_rate(task, guard))


def hold_writes(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
    """Throttle topics that are not terminated, and return the time since which no writes were seen."""
    since = time.monotonic()
    topics = {
        guard: [
            topic for topic in topics_of(task.blue.admin, guard.namespace) if not is_terminated(task.blue.admin, topic)
        ]
        for guard in guards
    }
    topics = {guard: names for guard, names in topics.items() if names}
    for guard in topics:
        throttle(task, guard)
    if topics:
        quiet, since = wait_until_quiet_since(task, topics, time.monotonic())
        if quiet.busy:
            raise StoreContention(f"topics still take messages under the publish limit: {', '.join(quiet.busy)}")
    return since


def throttled_rate(task: AnyBlueGreenTask, guard: NamespaceGuard) -> OverriddenPolicy[PublishRate]:
    """Return the publish limit of a namespace while it flips; it is the same for each attempt."""
    cluster = task.input.cluster
    if noted := guard.require().publish_rate:
        return rate(cluster, PublishRate.model_validate(noted.ours).publish_throttling_rate_in_byte)
    limit = task.input.throttle_bytes
    if has_defect(task.blue.release, _LIMIT_LIFTED_LATE):
        topics = topics_of(task.blue.admin, guard.namespace)
        rounds = task.each(topics, lambda topic: _bytes_per_round(task, topic))
        limit = max(limit, limit_for_hold_time(rounds, _hold_seconds(task)))
    return rate(cluster, limit)


def limit_for_hold_time(rounds: Iterable[float], seconds: float) -> int:
    """Return the limit, in bytes/s, that holds each topic back for some time, and none for much longer.

    Some brokers do not read a connection before the limit allows it, even after the limit was removed (#25502). There
    each byte that a topic takes after the limit was set holds its producers back for 1/limit seconds.

    Args:
        rounds: for each topic, the bytes that it takes if each of its producers sends once; 0 for an idle topic.
        seconds: how long the topic with the smallest round is held back.
    """
    return max(1, int(min(filter(None, rounds), default=0.0) / seconds))


def _hold_seconds(task: AnyBlueGreenTask) -> float:
    return task.input.quiesce_timeout.total_seconds()


def bytes_per_round(stats: TopicStats, inside: InternalStats, seconds: float) -> float:
    """Return the bytes of one entry from each producer that is likely to send while writes are held back.

    The size of entries of the last minute is used. Without any, the average of all stored entries is used, which may
    differ much from the current size.

    Args:
        stats: statistics of the topic.
        inside: statistics of its managed ledger.
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


def _bytes_per_round(task: AnyBlueGreenTask, topic: TopicName) -> float:
    stats = check_topic(task.blue.admin, topic).stats
    if stats is None or not stats.publishers:
        return 0.0
    return bytes_per_round(stats, task.blue.admin.topics.internal_stats(topic), _hold_seconds(task))


def lift_publish_limit(task: AnyBlueGreenTask, guard: NamespaceGuard) -> str:
    """Restore the namespace's publish rate and auto-creation policy; return `restore_policy`'s notes."""
    notes = (restore_policy(task, guard, rate(task.input.cluster)), restore_policy(task, guard, AUTO_CREATION))
    return "; ".join(filter(None, notes))


def lift_limit_if_terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> str:
    """Lift the publish limit, unless the namespace has its flag and topics that brokers have not terminated yet."""
    if is_held_back(guard.require()) and read_flag(guard.store, guard.namespace):
        topics = topics_of(task.blue.admin, guard.namespace)
        if not all(task.each(topics, lambda topic: is_terminated(task.blue.admin, topic))):
            return ""
    return lift_publish_limit(task, guard)


def require_quiet(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
    """Check, right before the flag, that the limit is set, no topic takes messages, and all messages are complete.

    Returns:
        The time of the check, for `require_seen_quiet`.

    Raises:
        StoreConflict: the limit was changed, or topics take messages, or a producer has sent only some chunks of a
            message, or there are too many topics to check in time.
    """
    for guard in guards:
        if not is_overridden(guard, rate(task.input.cluster)):
            now = stored_policy(guard, rate(task.input.cluster))
            raise StoreConflict(
                f"nothing is flipped: the publish rate of {guard.namespace} was changed during the flip, to "
                f"{now.body() if now else 'none'}"
            )
    topics = topics_by_guard(task, guards)

    def check() -> None:
        require_whole_messages(task, [topic for names in topics.values() for topic in names])

    # mutant: blue-green/message-that-is-cut-in-two
    quiet, since = wait_until_quiet_since(task, topics, time.monotonic(), same_checks=1, check=check)
    if quiet.busy:
        raise StoreConflict(f"nothing is flipped: topics still take messages under the limit: {summarize(quiet.busy)}")
    if (seconds := time.monotonic() - since) > _valid_for(task):  # mutant: blue-green/check-that-takes-too-long
        raise StoreConflict(
            f"nothing is flipped: the check of {sum(map(len, topics.values()))} topics takes {seconds:.0f} s, and the "
            f"limit may hold writes back for only {task.input.quiesce_timeout.total_seconds():.0f} s. Move fewer "
            "namespaces in one batch (waves.batch_size), or increase quiesce_timeout"
        )
    return since


def require_seen_quiet(task: AnyBlueGreenTask, since: float) -> None:
    """Check, right before the write of a flag, that the last check for writes is recent.

    The worker may have been frozen since that check, and each producer still sends a message from time to time.

    Args:
        task: the step.
        since: time of the check, from `require_quiet`.

    Raises:
        StoreContention: the check is too old; the next attempt checks again.
    """
    if (seconds := time.monotonic() - since) > _valid_for(task):
        raise StoreContention(f"the last check that writes are held back is {seconds:.0f} s old; it is repeated")


def _valid_for(task: AnyBlueGreenTask) -> float:
    """Return the seconds for which a check for writes is valid: brokers need the rest to terminate topics."""
    return task.input.quiesce_timeout.total_seconds() / 2


def topics_by_guard(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> dict[NamespaceGuard, list[TopicName]]:
    """Return the topics of some namespaces of blue."""
    return {guard: topics_of(task.blue.admin, guard.namespace) for guard in guards}


def wait_until_quiet(
    task: AnyBlueGreenTask,
    topics: Mapping[NamespaceGuard, Sequence[TopicName]],
    begun: float,
) -> Quiet:
    """Wait until no messages are sent to these topics of blue, for at most `quiesce_timeout`.

    If topics stay busy, the limit is written again for their brokers.
    """
    return wait_until_quiet_since(task, topics, begun)[0]


def wait_until_quiet_since(
    task: AnyBlueGreenTask,
    topics: Mapping[NamespaceGuard, Sequence[TopicName]],
    begun: float,
    *,
    same_checks: int = _SAME_CHECKS,
    check: Callable[[], None] | None = None,
) -> tuple[Quiet, float]:
    """Wait until no messages are sent, and return also the time at which the last check started.

    Args:
        task: the step.
        topics: topics of blue, by namespace.
        begun: time at which the limit was set.
        same_checks: number of consecutive checks that must see no new messages.
        check: function that is called after each check but the last. It sees all messages if the next check finds
            equal counters.
    """
    end = begun + task.input.quiesce_timeout.total_seconds()
    every = [topic for names in topics.values() for topic in names]
    before: dict[TopicName, Traffic] = {}
    same, checks, rewritten, since = 0, 0, time.monotonic(), begun
    busy: list[TopicName] = []
    why = ""
    while same < same_checks:
        checks += 1
        since = time.monotonic()
        states = task.each(every, lambda topic: check_topic(task.blue.admin, topic))
        loaded = [state.topic for state in states if state.stats]
        report_blue_backlog(task.context, filter(None, (state.stats for state in states)))
        now = {state.topic: traffic_of(state.stats) if state.stats else Traffic() for state in states}
        busy = [topic for topic in every if before.get(topic, (-1,))[0] != now[topic].sent]
        # Consumers get some time to drain: one that reaches the end while the topic is terminated gets the error that
        # the topic has ended, without the address of green.
        draining = any(0 < now[topic].backlog < before[topic].backlog for topic in every if topic in before)
        may_drain = time.monotonic() < begun + (end - begun) / 2
        same = 0 if busy or (draining and may_drain) else same + 1
        why = ""
        if same >= same_checks:
            # Brokers count a message before bookies have it. A topic that is terminated then would be fenced.
            busy = _unconfirmed(task, loaded)
            same = 0 if busy else same  # mutant: blue-green/quiet-before-bookies-have-confirmed
            why = _NOT_CONFIRMED if busy else ""
        # A single check proves nothing, however long a broker took to answer.
        if busy and checks > 1 and time.monotonic() > end:
            break
        before = now
        if busy:
            task.context.waiting_for(WaitKind.CLIENTS, f"writes to stop: {summarize(busy)}{why}")
            if time.monotonic() > rewritten + _REWRITE_EVERY:
                _rewrite_limit(topics, busy)  # mutant: blue-green/broker-that-missed-the-limit
                rewritten = time.monotonic()
        if check is not None and same < same_checks:
            # Unconfirmed messages cannot be read yet, so the next check must not be the last.
            if unread := _unconfirmed(task, loaded):
                # mutant: blue-green/chunks-that-are-not-confirmed
                before = {topic: seen for topic, seen in before.items() if topic not in unread}
            else:
                check()
        task.context.pause(_CHECK_EVERY)
    task.context.clear_waiting()
    named = tuple(f"{topic}{why}" for topic in busy[:_NAMED]) if same < same_checks else ()
    return Quiet(seconds=round(time.monotonic() - begun, 3), busy=named, checks=checks), since


def _unconfirmed(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[TopicName]:
    """Return the topics with messages that bookies have not confirmed."""

    def count(topic: TopicName) -> int:
        # It was deleted, or unloaded, which closes its ledger.
        with suppress(AdminNotFound, AdminServerError):
            return task.blue.admin.topics.internal_stats(topic).pending_add_entries_count
        return 0

    counts = task.each(topics, count)
    return [topic for topic, waiting in zip(topics, counts, strict=True) if waiting]


def _rewrite_limit(topics: Mapping[NamespaceGuard, Sequence[TopicName]], busy: Sequence[TopicName]) -> None:
    for guard in topics:
        # A deleted namespace has no writers.
        with suppress(StoreNotFound):
            if not set(busy).isdisjoint(topics[guard]):
                rewrite_policies(guard)


# Messages of which only some chunks are stored ------------------------------------------------------------------------

# The limit may hold a producer back between two chunks. If its topic was terminated then, the other chunks would go to
# green. Brokers update the counters of chunks once a minute, so these miss the last chunks.


_FEWEST, _MOST = 32, 256
"""Number of entries to read at the end of a topic: with writes held back, few follow a producer's last entry."""

# Clients time out long before, and clocks differ by less.
_LONG_AGO = timedelta(hours=1)


def require_whole_messages(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> None:
    """Check the last entries of all topics of a batch that have producers.

    Raises:
        StoreConflict: a producer has sent only some chunks of a message, or may have; the others would go to green.
    """
    read: list[TopicName] = []

    def check(topic: TopicName) -> str:
        why = _problem(task, topic)
        read.append(topic)
        return why

    task.context.measure(ProgressTask.OPERATE, ProgressUnit.TOPICS, len(topics), lambda: len(read))
    task.context.waiting_for(
        WaitKind.CLIENTS, f"messages in chunks: the last entries of {len(topics):,} topics are read"
    )
    problems = zip(topics, task.each(topics, check), strict=True)
    if cut := [f"{topic}: {why}" for topic, why in problems if why]:
        raise StoreConflict(
            "nothing is flipped: only some chunks of messages have arrived, and the others would go to green: "
            f"{summarize(cut)}"
        )
    task.context.clear_progress()
    task.context.clear_waiting()


def _problem(task: AnyBlueGreenTask, topic: TopicName) -> str:
    """Return which message of a topic is incomplete, or may be, in words; empty for none."""
    stats = check_topic(task.blue.admin, topic).stats
    if stats is None or not stats.publishers:  # mutant: blue-green/chunk-of-a-topic-that-was-loaded-again
        return ""
    # The counter of chunks may be 0: the first chunk may have been stored before the topic was loaded again.
    try:
        ledgers = ledger_lengths(task.blue.admin.topics.internal_stats(topic))
        heads = (task.blue.admin.topics.entry_head(topic, position) for position in _backwards(ledgers))
        return unfinished_of(heads, {client.producer_name for client in stats.publishers})
    except AdminNotFound:
        # The topic, or a trimmed ledger, was deleted.
        return ""


def unfinished_of(heads: Iterator[EntryHead], producers: set[str]) -> str:
    """Return which producer's last message is incomplete, in words; empty for none.

    A producer sends the chunks of a message in order. If another message follows, an incomplete one was given up. If
    some producers send chunks, and the last entry of another producer was not found, that producer counts as unknown.

    Args:
        heads: metadata of entries, the last entry first.
        producers: names of connected producers.
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
            return f"unknown for {summarize(sorted(waiting))}: not in the last {limit} entries" if chunks else ""
    return ""


def _backwards(ledgers: Sequence[LedgerLength]) -> Iterator[tuple[int, int]]:
    for ledger_id, entries in reversed(ledgers):
        for entry_id in reversed(range(entries)):
            yield ledger_id, entry_id
