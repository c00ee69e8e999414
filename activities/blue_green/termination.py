"""Termination of topics on blue: set the flags, wait for brokers to terminate topics, and repair reopened ones.

A broker that rolls over the ledger of a topic while the topic is terminated may reopen the topic (#26680). Messages
that it takes then are acknowledged and stored after the topic's end, and no consumer gets them after the next load.
Writes are held back during the termination, but each producer still sends a message from time to time. So topics are
checked afterwards, and reopened ones are terminated again, after these messages.

In the same situation the broker may fail to store the termination. Then it fences the topic, and neither terminates nor
serves it until the next load (4.0.8). Such topics are unloaded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.namespace_redirect import wait_until_seen
from activities.blue_green.policies import AUTO_CREATION, restore_policy
from activities.blue_green.provisioning.late_topics import create_late
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.blue_green.topics import check_topic, is_terminated, load_topics, topics_of
from activities.blue_green.write_limit import hold_writes, lift_publish_limit, require_seen_quiet
from activities.pulsar.await_on_brokers import LOOK_EVERY
from activities.pulsar.overridden_policies import override_policies, wait_until_known
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasStore
from clients.errors import StoreContention
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import InternalInfo, InternalStats, Position
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from models.blue_green.claims import Stage, TopicClients
from models.blue_green.results import Flipped
from models.defects import has_defect
from models.lifecycle.failures import summarize
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind

_BLOCKED_EVERY = 2.0
_NAMED = 10
_REOPENS = "TERMINATE_REOPENS"
_TRIES = 3
_FENCED = "Fenced"
# State of a topic that is being unloaded or deleted.
_CLOSED = frozenset(("Closed", "FencedForDeletion"))


def terminate_again(
    task: AnyBlueGreenTask,
    guard: NamespaceGuard,
    store: CasStore,
    topics: Sequence[TopicName],
    *,
    unended: Sequence[TopicName] = (),
) -> dict[TopicName, str]:
    """Terminate topics again that brokers have reopened, and unload topics that brokers have fenced.

    Brokers delete a drained subscription of a terminated topic. Such a subscription lacks the messages that a reopened
    topic took later; this is noted.

    Args:
        task: the step.
        guard: guard of the namespace.
        store: blue's metadata store.
        topics: terminated topics.
        unended: topics among them that are not terminated yet. Only these are checked if blue's brokers do not reopen
            topics.

    Returns:
        What was done with each reopened or fenced topic, in words.
    """
    repairs: dict[TopicName, str] = {}
    if not may_reopen(task):
        topics = unended
    for _ in range(_TRIES):
        checked = zip(topics, task.each(topics, lambda topic: _if_open(task, topic)), strict=True)
        faulty = {topic: stats for topic, stats in checked if stats}
        for topic, stats in faulty.items():
            repairs[topic] = (
                _unload(task, guard, topic) if stats.state == _FENCED else _terminate(task, guard, store, topic, stats)
            )
        if not faulty:
            break
    return repairs


def may_reopen(task: AnyBlueGreenTask) -> bool:
    """Return whether blue's brokers may reopen terminated topics."""
    return has_defect(task.blue.release, _REOPENS)  # mutant: blue-green/topics-that-stay-open


def _if_open(task: AnyBlueGreenTask, topic: TopicName) -> InternalStats | None:
    """Return the topic's managed ledger if the broker has reopened or fenced it; None otherwise."""
    # If it does not exist or is not loaded, the stored state counts.
    with suppress(AdminNotFound, AdminServerError):
        stats = task.blue.admin.topics.internal_stats(topic)
        # The broker could not store the termination, so the store cannot be asked.
        if stats.state == _FENCED:
            return stats
        if may_reopen(task) and not stats.terminated and stats.state not in _CLOSED:
            info = stored(task.blue.admin, topic)
            return stats if info and info.marked else None
    return None


def _unload(task: AnyBlueGreenTask, guard: NamespaceGuard, topic: TopicName) -> str:
    # It was deleted or unloaded since.
    with suppress(AdminNotFound, AdminServerError):
        task.blue.change_or_never(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.topics.unload(topic),
        )
    return f"{topic} was fenced by its broker, which could not store the termination; it was unloaded"


def _terminate(
    task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName, stats: InternalStats
) -> str:
    saved = {TopicName.parse(name): clients for name, clients in saved_clients(store, guard.namespace).items()}
    clients = saved.get(topic, TopicClients())
    info = stored(task.blue.admin, topic)
    first = info.terminated_position if info else None
    missed = tuple(sorted({*clients.missed, *_lacking(clients.consumers, stats)}))

    def save_missed(missed: tuple[str, ...]) -> None:
        if missed != clients.missed:
            save_clients(store, guard, {**saved, topic: clients.model_copy(update={"missed": missed})})

    # Noted before the call: after it, another attempt cannot see that the topic was open.
    save_missed(missed)
    end = task.blue.change_or_never(
        connect=lambda admin: admin.topics.internal_info(topic),
        fence=guard.require,
        change=lambda admin: admin.topics.terminate(topic),
    )
    entries = _entries_between(first, end, stored(task.blue.admin, topic))
    note = f"{topic} was terminated at {_text(first)}, reopened by its broker (#26680), and terminated again at "
    note += _text(end)
    if not entries:
        save_clients(store, guard, {**saved, topic: clients})
        return f"{note}; it took no messages in between"
    note += f", {entries} entries later" if first else ""
    return (
        f"{note}; these subscriptions were deleted before, and lack these entries: {', '.join(missed)}"
        if missed
        else note
    )


def _entries_between(first: Position | None, end: Position, info: InternalInfo | None) -> int:
    """Return the number of entries between two terminations of a topic; 1 if it is not known."""
    if first is None or info is None:
        return 1
    # The number of entries of the last ledger is not stored.
    later = (ledger for ledger in info.ledgers if first.ledger_id < ledger.ledger_id < end.ledger_id)
    return sum(ledger.entries for ledger in later) + end.entry_id + 1 if end.ledger_id > first.ledger_id else 0


def _lacking(subscriptions: Iterable[str], stats: InternalStats) -> list[str]:
    return [name for name in subscriptions if name not in stats.cursors]


def _text(position: Position | None) -> str:
    return f"{position.ledger_id}:{position.entry_id}" if position else "an unknown position"


# From the flags to the termination of all topics ----------------------------------------------------------------------


class NotTerminated(StoreContention):
    """Brokers have not terminated all topics in time."""


def terminate_topics(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Flipped:
    """Complete the flip of namespaces that an earlier attempt or run started, with writes held back.

    Raises:
        StoreContention: writes do not stop, or topics are not terminated in time; writes are still held back.
    """
    since = hold_writes(task, [guard for guard in guards if not read_flag(store, guard.namespace)])
    for guard in guards:
        guard.note(stage=Stage.FLIPPED)
    return redirect_clients(task, guards, store, quiet_since=since)


def terminate_or_give_up(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> str:
    """Terminate topics; return why some are not terminated once the step has taken `drain_timeout`, empty otherwise.

    Raises:
        StoreContention: topics are not terminated yet; the next attempt tries again.
    """
    try:
        terminate_topics(task, guards, store)
    except StoreContention as error:
        if not is_overdue(task):  # mutant: blue-green/drain-without-an-end
            raise
        return str(error)
    return ""


def is_overdue(task: AnyBlueGreenTask) -> bool:
    """Return whether all attempts of a step together have taken `drain_timeout`."""
    return task.context.age > task.input.drain_timeout.total_seconds()


def redirect_clients(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, *, quiet_since: float
) -> Flipped:
    """Set the flags, so that brokers redirect the clients of these namespaces, and wait until topics are terminated.

    Writes are released after the termination of all topics: a producer that sends to a topic while its broker
    terminates it gets an error that the topic has ended, and never sends again.
    """
    started = time.monotonic()
    for guard in guards:

        def may_flip(guard: NamespaceGuard = guard) -> None:
            guard.require()
            require_seen_quiet(task, quiet_since)  # mutant: blue-green/flag-long-after-the-last-check

        set_flag(store, guard.namespace, may_flip, migrated=True)
    for guard in guards:
        wait_until_seen(task, guard.namespace, migrated=True)
    count, reopened = _wait_until_terminated(task, guards, store)
    seconds = round(time.monotonic() - started, 3)
    # Before producers send to green: a subscription that its consumer creates later would miss their messages.
    create_late(task, guards, store)
    # mutant: blue-green/limit-that-stays-after-the-flip
    notes = tuple(why for guard in guards if (why := lift_publish_limit(task, guard)))
    return Flipped(
        topics=count,
        seconds=seconds,
        notes=notes,
        reopened=tuple(reopened.values())[:_NAMED],
    )


def reload_topics(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]) -> None:
    """Load topics of a namespace that were unloaded during the flip: take the flag off for that, and set it again.

    While the flag is set, brokers do not load a topic, so consumers could not drain it. While it is off, blue serves
    new clients. So writes are held back, even if an earlier run has released them, and clients cannot create topics
    that only green has.

    Raises:
        StoreContention: writes do not stop, or brokers do not see the change in time.
    """
    hold_writes(task, [guard])  # mutant: blue-green/flag-taken-off-without-a-limit
    override_policies(guard, AUTO_CREATION)  # mutant: blue-green/clients-create-topics-while-the-flag-is-off
    wait_until_known(guard, AUTO_CREATION, task.context, task.blue.brokers)
    task.context.waiting_for(WaitKind.CLIENTS, f"{len(topics)} topics to be loaded again, {topics[0]} among them")
    set_flag(store, guard.namespace, guard.require, migrated=False)
    try:
        wait_until_seen(task, guard.namespace, migrated=False)
        load_topics(task, topics)
    finally:
        set_flag(store, guard.namespace, guard.require, migrated=True)
    wait_until_seen(task, guard.namespace, migrated=True)
    restore_policy(task, guard, AUTO_CREATION)
    task.context.clear_waiting()


def _wait_until_terminated(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore
) -> tuple[int, dict[TopicName, str]]:
    """Wait until all topics are terminated, after each broker has seen the flags.

    Returns:
        The number of topics, and notes on reopened ones.

    Raises:
        NotTerminated: some topics are not terminated in time.
    """
    begun = time.monotonic()
    end = begun + task.input.flip_timeout.total_seconds()
    next_check = begun + _BLOCKED_EVERY
    done: set[TopicName] = set()
    reopened: dict[TopicName, str] = {}
    while True:
        topics = {guard: topics_of(task.blue.admin, guard.namespace) for guard in guards}
        waiting = [topic for names in topics.values() for topic in names if topic not in done]
        terminated = task.each(waiting, lambda topic: is_terminated(task.blue.admin, topic))
        done |= {topic for topic, is_done in zip(waiting, terminated, strict=True) if is_done}
        pending = [topic for topic in waiting if topic not in done]
        count = len(done) + len(pending)
        task.context.progress(ProgressTask.TERMINATE, ProgressUnit.TOPICS, len(done), count)
        over = not pending or time.monotonic() > end
        if over or time.monotonic() > next_check:
            for guard, names in topics.items():
                waiting = [topic for topic in names if topic in pending]
                reopened |= terminate_again(task, guard, store, names, unended=waiting)
        if not pending:  # mutant: blue-green/writes-released-before-topics-are-ended
            return count, reopened
        if over:
            raise NotTerminated(
                f"{len(pending)} topics are not terminated {task.input.flip_timeout.total_seconds():.0f} s after their "
                f"flags were set; writes stay held back until they are, or the flags are off: {summarize(pending)}"
            )
        if time.monotonic() > next_check:
            for guard, names in topics.items():
                _reload_blocked(task, guard, store, [topic for topic in names if topic in pending])
            next_check = time.monotonic() + _BLOCKED_EVERY
        task.context.pause(LOOK_EVERY)


def _reload_blocked(
    task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]
) -> None:
    states = task.each(topics, lambda topic: check_topic(task.blue.admin, topic))
    blocked = [state.topic for state in states if state.blocked]
    if blocked:
        reload_topics(task, guard, store, blocked)
