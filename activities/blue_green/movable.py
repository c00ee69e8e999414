"""Whether topics can be moved as they are used now: asked in PRECHECK, in LOAD, and while writes are held back.

A flip cuts a topic between two of its entries. What belongs to several entries, such as a message in chunks or a
transaction, would be in part on blue and in part on green, where nobody gets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from activities.blue_green.client_versions import cannot_follow, lacking_address
from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.topics import look_at, topics_of
from activities.pulsar.overridden_policies import LOOK_EVERY
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import Client, TopicStats
from clients.pulsar.names import TopicName
from models.lifecycle.failures import some
from models.lifecycle.status import WaitKind

CHUNKS = "its producers send messages in chunks"


def clients_in(stats: TopicStats) -> Iterator[Client]:
    """All clients that are connected to a topic."""
    yield from stats.publishers
    for sub in stats.subscriptions.values():
        yield from sub.consumers


def transactions_in(stats: TopicStats) -> str:
    """Return what transactions have done in a topic since its broker loaded it; empty for nothing."""
    counts = {
        "open": stats.ongoing_txn_count,
        "committed": stats.committed_txn_count,
        "aborted": stats.aborted_txn_count,
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0)


def replicators_down(stats: TopicStats) -> list[str]:
    """Return the clusters that do not answer to which a topic is replicated, unless it is idle."""
    return sorted(
        remote
        for remote, replication in stats.replication.items()
        if not replication.connected and (replication.replication_backlog or stats.publishers)
    )


def require_movable(task: AnyBlueGreenTask, topics: Iterable[tuple[TopicName, TopicStats]]) -> None:
    """Ask of topics what PRECHECK asked; days may have passed since then.

    Raises:
        StoreConflict: clients of one of them use what a flip would break.
    """
    if problems := [f"{topic}: {why}" for topic, stats in topics for why in _problems(task, stats)]:
        raise StoreConflict(f"topics cannot be moved as they are used now, so nothing is flipped: {some(problems)}")


def await_movable(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], *, drained: bool) -> None:
    """Wait until the replicators of all topics of a batch run, and ask of the topics what `require_movable` asks.

    A topic that is ended with a backlog for a third cluster takes no messages until that cluster has it.

    Args:
        task: the step.
        guards: of the namespaces.
        drained: wait also until the replicators have nothing left, while writes are held back.

    Raises:
        StoreConflict: a topic cannot be moved, or a replicator is not ready within `quiesce_timeout`.
    """
    end = time.monotonic() + task.input.quiesce_timeout.total_seconds()
    topics = [topic for guard in guards for topic in topics_of(task.blue, guard.namespace)]
    while topics:
        looks = task.each(topics, lambda topic: look_at(task.blue, topic))
        loaded = [(look.topic, look.stats) for look in looks if look.stats]
        require_movable(task, loaded)
        waiting = {topic: why for topic, stats in loaded if (why := _unready(stats, drained=drained))}
        if not waiting:
            break
        reasons = some([f"{topic}: {why}" for topic, why in waiting.items()])
        if time.monotonic() > end:
            raise StoreConflict(f"topics would take no messages after their flip, so nothing is flipped: {reasons}")
        task.context.waiting_for(WaitKind.CLIENTS, f"replication: {reasons}")
        task.context.pause(LOOK_EVERY)
        topics = list(waiting)
    task.context.waits_no_more()


def _problems(task: AnyBlueGreenTask, stats: TopicStats) -> Iterator[str]:
    if stats.msg_chunk_published:  # mutant: blue-green/chunks-that-came-since-the-precheck
        yield CHUNKS
    if counts := transactions_in(stats):  # mutant: blue-green/transactions-since-the-precheck
        yield f"it is used in transactions ({counts})"
    for client in clients_in(stats):  # mutant: blue-green/old-clients-since-the-precheck
        if why := cannot_follow(client.client_version or "", lacks_address=lacking_address(task.input.green)):
            yield f"the client {client.address} cannot follow: {why}"


def _unready(stats: TopicStats, *, drained: bool) -> str:
    """Why a topic's replicators are not ready; empty if they are."""
    if not drained:  # mutant: blue-green/backlog-of-replication-at-the-flag
        down = replicators_down(stats)  # mutant: blue-green/replicators-that-are-down
        return f"{', '.join(down)} is not connected" if down else ""
    left = {remote: one.replication_backlog for remote, one in stats.replication.items() if one.replication_backlog}
    return ", ".join(f"{count:,} messages are not in {remote} yet" for remote, count in left.items())
