"""Messages in chunks of which a part is stored: asked while writes are held back, right before the flag.

A limit holds a producer back between two chunks. If its topic was ended then, the other chunks would be sent to green.
Brokers count chunks once a minute, so what they count does not tell of the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from activities.blue_green.context import BlueGreenTask
from activities.blue_green.topics import look_at
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topics import EntryHead
from clients.pulsar.names import TopicName
from models.lifecycle.failures import some
from spark.blue_green.positions import LedgerLength
from spark.blue_green.tasks import ledger_lengths

_MOST_ENTRIES = 32
"""At the end of a topic: with writes held back, few follow the last entry of any producer."""

# Clients give up long before, and clocks differ by less.
_LONG_AGO = timedelta(hours=1)


def require_whole_messages(task: BlueGreenTask, topics: Sequence[TopicName]) -> None:
    """Look at the ends of all topics of a batch that have producers.

    Raises:
        StoreConflict: a producer has sent a part of a message, and the rest would go to green.
    """
    found = zip(topics, task.each(topics, lambda topic: _unfinished(task, topic)), strict=True)
    if cut := [f"{topic}: {head.chunk + 1} of {head.chunks} by {head.producer}" for topic, head in found if head]:
        raise StoreConflict(
            f"messages have arrived in part, and would be cut in two, so nothing is flipped: {some(cut)}"
        )


def _unfinished(task: BlueGreenTask, topic: TopicName) -> EntryHead | None:
    stats = look_at(task.blue, topic).stats
    if stats is None or not stats.publishers:
        return None
    # Its counter may be 0: a topic that was loaded again has stored the first chunk before.
    try:
        ledgers = ledger_lengths(task.blue.topics.internal_stats(topic))
        heads = (task.blue.topics.entry_head(topic, position) for position in _backwards(ledgers))
        return unfinished_of(islice(heads, _MOST_ENTRIES), {client.producer_name for client in stats.publishers})
    except AdminNotFound:
        # It, or what retention kept of it, is gone.
        return None


def unfinished_of(heads: Iterator[EntryHead], producers: set[str]) -> EntryHead | None:
    """Return the last entry of a producer if more of its message has to follow; None if there is none.

    A producer sends the chunks of a message one after the other, so that one without an end that is followed by another
    message of the same producer was given up.

    Args:
        heads: of entries, the last one first.
        producers: names of those that are connected.
    """
    waiting, oldest = set(producers), datetime.now(UTC) - _LONG_AGO
    for head in heads:
        if head.published is not None and head.published < oldest:
            return None
        if head.producer in waiting and head.is_unfinished:
            return head
        waiting.discard(head.producer)
        if not waiting:
            return None
    return None


def _backwards(ledgers: Sequence[LedgerLength]) -> Iterator[tuple[int, int]]:
    for ledger_id, entries in reversed(ledgers):
        for entry_id in reversed(range(entries)):
            yield ledger_id, entry_id
