"""The end of topics on blue: flags are set, brokers terminate topics, and what they opened or unloaded is ended again.

A broker that changes the ledger of a topic just as the topic is ended may open it again (#26680). What it takes from
then on is acknowledged and stored after the topic's end, where no consumer gets it once the topic was loaded again.
Writes are held back while topics are ended, but each producer gets a message through now and then. So topics are
checked after that, and those that were opened again are ended again, after these messages.

In the same moment the broker may fail to store the end. It fences the topic then: it does not end it any more, and does
not serve it before it is loaded again (4.0.8). Such topics are unloaded.
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
from models.lifecycle.failures import some
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind

_BLOCKED_EVERY = 2.0
_NAMED = 10
_REOPENS = "TERMINATE_REOPENS"
_TRIES = 3
_FENCED = "Fenced"
# Of a topic that is being unloaded or deleted.
_CLOSED = frozenset(("Closed", "FencedForDeletion"))


def terminate_again(
    task: AnyBlueGreenTask,
    guard: NamespaceGuard,
    store: CasStore,
    topics: Sequence[TopicName],
    *,
    unended: Sequence[TopicName] = (),
) -> dict[TopicName, str]:
    """End topics of blue again that brokers have opened again, and unload those that brokers have fenced.

    Subscriptions that brokers had removed by then, because they had nothing left to read, are noted: they lack what the
    topic took since.

    Args:
        task: the step.
        guard: of their namespace.
        store: blue's metadata store.
        topics: that were ended.
        unended: those among them that are not ended yet; of them only, brokers that open no topic again are asked.

    Returns:
        What happened to each of them that was open or fenced, in words.
    """
    told: dict[TopicName, str] = {}
    if not may_reopen(task):
        topics = unended
    for _ in range(_TRIES):
        opened = zip(topics, task.each(topics, lambda topic: _if_open(task, topic)), strict=True)
        found = {topic: stats for topic, stats in opened if stats}
        for topic, stats in found.items():
            told[topic] = (
                _unload(task, guard, topic) if stats.state == _FENCED else _end(task, guard, store, topic, stats)
            )
        if not found:
            break
    return told


def may_reopen(task: AnyBlueGreenTask) -> bool:
    """Return whether blue's brokers may open topics again that were ended."""
    return has_defect(task.blue_release, _REOPENS)  # mutant: blue-green/topics-that-stay-open


def _if_open(task: AnyBlueGreenTask, topic: TopicName) -> InternalStats | None:
    """The topic as its broker has it in memory, if it was ended and is open, or is fenced."""
    # It is gone, or not loaded: then what is stored counts.
    with suppress(AdminNotFound, AdminServerError):
        stats = task.blue.topics.internal_stats(topic)
        # The store has nothing of an end that could not be stored.
        if stats.state == _FENCED:
            return stats
        if may_reopen(task) and not stats.terminated and stats.state not in _CLOSED:
            info = stored(task.blue, topic)
            return stats if info and info.marked else None
    return None


def _unload(task: AnyBlueGreenTask, guard: NamespaceGuard, topic: TopicName) -> str:
    # It is gone, or was unloaded since.
    with suppress(AdminNotFound, AdminServerError):
        task.change_blue(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.topics.unload(topic),
        )
    return f"{topic} was fenced by its broker, which could not store its end, and unloaded"


def _end(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName, stats: InternalStats) -> str:
    known = {TopicName.parse(name): clients for name, clients in saved_clients(store, guard.namespace).items()}
    clients = known.get(topic, TopicClients())
    info = stored(task.blue, topic)
    first = info.terminated_position if info else None
    missed = tuple(sorted({*clients.missed, *_lacking(clients.consumers, stats)}))

    def note(missed: tuple[str, ...]) -> None:
        if missed != clients.missed:
            save_clients(store, guard, {**known, topic: clients.model_copy(update={"missed": missed})})

    # Noted before: an attempt that comes after this call does not see any more that the topic was open.
    note(missed)
    end = task.change_blue(
        connect=lambda admin: admin.topics.internal_info(topic),
        fence=guard.require,
        change=lambda admin: admin.topics.terminate(topic),
    )
    entries = _taken(first, end, stored(task.blue, topic))
    told = f"{topic} was ended at {_text(first)}, opened again by its broker (#26680), and ended at {_text(end)}"
    if not entries:
        save_clients(store, guard, {**known, topic: clients})
        return f"{told}; it took nothing in between"
    told += f", {entries} entries later" if first else ""
    return f"{told}; these subscriptions had left by then, and lack them: {', '.join(missed)}" if missed else told


def _taken(first: Position | None, end: Position, info: InternalInfo | None) -> int:
    """How many entries a topic has between two of its ends; 1 where that is not known."""
    if first is None or info is None:
        return 1
    # What the last ledger has is not stored with it.
    later = (ledger for ledger in info.ledgers if first.ledger_id < ledger.ledger_id < end.ledger_id)
    return sum(ledger.entries for ledger in later) + end.entry_id + 1 if end.ledger_id > first.ledger_id else 0


def _lacking(subscriptions: Iterable[str], stats: InternalStats) -> list[str]:
    return [name for name in subscriptions if name not in stats.cursors]


def _text(position: Position | None) -> str:
    return f"{position.ledger_id}:{position.entry_id}" if position else "a position that is gone"


# From the flags to the end of all topics ------------------------------------------------------------------------------


class NotTerminated(StoreContention):
    """Brokers have not terminated all topics in time."""


def terminate_topics(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Flipped:
    """Bring namespaces to the end of their flip that was begun at some time, with writes held back.

    Raises:
        StoreContention: writes do not become quiet, or topics are not terminated in time; writes are held back still.
    """
    since = hold_writes(task, [guard for guard in guards if not read_flag(store, guard.namespace)])
    for guard in guards:
        guard.note(stage=Stage.FLIPPED)
    return redirect_clients(task, guards, store, quiet_since=since)


def terminate_or_give_up(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> str:
    """Terminate topics; return why some are not terminated once the step has taken `drain_timeout`, empty otherwise.

    Raises:
        StoreContention: topics are not ended yet, and the next attempt tries it again.
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
    """From the flags on: clients of these namespaces are sent to green.

    Writes are released once all topics are terminated: a producer of one that a broker terminates later is told that
    the topic has ended, and never sends again.
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
    # Before producers send to green: a consumer that comes first would begin after their messages.
    create_late(task, guards, store)
    # mutant: blue-green/limit-that-stays-after-the-flip
    kept = tuple(why for guard in guards if (why := lift_publish_limit(task, guard)))
    return Flipped(
        topics=count,
        seconds=seconds,
        notes=kept,
        reopened=tuple(reopened.values())[:_NAMED],
    )


def reload_topics(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]) -> None:
    """Load topics of a namespace that were unloaded during the flip: the flag is taken off for that, and set again.

    A flag that is set keeps brokers from loading a topic, so that nobody could drain it any more. Until it is set again
    blue serves clients that begin there: writes are held back, also where an earlier run has flipped the namespace and
    released them, and no client creates a topic that only green has.

    Raises:
        StoreContention: writes do not become quiet, or brokers do not see the change in time.
    """
    hold_writes(task, [guard])  # mutant: blue-green/flag-taken-off-without-a-limit
    override_policies(guard, AUTO_CREATION)  # mutant: blue-green/clients-create-topics-while-the-flag-is-off
    wait_until_known(guard, AUTO_CREATION, task.context, task.blue_brokers)
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
    """Wait until all topics are terminated, from the moment that each broker has seen the flags.

    Returns:
        The number of all, and those that were opened again.

    Raises:
        NotTerminated: some are not in time.
    """
    begun = time.monotonic()
    end = begun + task.input.flip_timeout.total_seconds()
    next_look = begun + _BLOCKED_EVERY
    done: set[TopicName] = set()
    reopened: dict[TopicName, str] = {}
    while True:
        topics = {guard: topics_of(task.blue, guard.namespace) for guard in guards}
        waiting = [topic for names in topics.values() for topic in names if topic not in done]
        terminated = task.each(waiting, lambda topic: is_terminated(task.blue, topic))
        done |= {topic for topic, ended in zip(waiting, terminated, strict=True) if ended}
        left = [topic for topic in waiting if topic not in done]
        count = len(done) + len(left)
        task.context.progress(ProgressTask.TERMINATE, ProgressUnit.TOPICS, len(done), count)
        over = not left or time.monotonic() > end
        if over or time.monotonic() > next_look:
            for guard, names in topics.items():
                waiting = [topic for topic in names if topic in left]
                reopened |= terminate_again(task, guard, store, names, unended=waiting)
        if not left:  # mutant: blue-green/writes-released-before-topics-are-ended
            return count, reopened
        if over:
            raise NotTerminated(
                f"{len(left)} topics are not terminated {task.input.flip_timeout.total_seconds():.0f} s after their "
                f"flags were set, and writes stay held back until they are, or the flags are off: {some(left)}"
            )
        if time.monotonic() > next_look:
            for guard, names in topics.items():
                _reload_blocked(task, guard, store, [topic for topic in names if topic in left])
            next_look = time.monotonic() + _BLOCKED_EVERY
        task.context.pause(LOOK_EVERY)


def _reload_blocked(
    task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]
) -> None:
    blocked = [look.topic for look in task.each(topics, lambda topic: check_topic(task.blue, topic)) if look.blocked]
    if blocked:
        reload_topics(task, guard, store, blocked)
