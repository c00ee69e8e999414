"""Messages in chunks of which a part is stored: asked while writes are held back, right before the flag.

A limit holds a producer back between two chunks. If its topic was ended then, the other chunks would be sent to green.
Brokers count chunks once a minute, so what they count does not tell of the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.topics import look_at
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import EntryHead
from clients.pulsar.names import TopicName
from models.lifecycle.failures import some
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import ledger_lengths

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
    task.context.counts_nothing()
    task.context.waits_no_more()


def _problem(task: AnyBlueGreenTask, topic: TopicName) -> str:
    """Return which message of a topic has arrived in part, or may have, in words; empty for none."""
    stats = look_at(task.blue, topic).stats
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
