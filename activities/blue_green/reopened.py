"""Topics that brokers open again after they were ended, and what these take then (#26680).

A broker that changes the ledger of a topic just as the topic is ended may open it again. What it takes from then on is
acknowledged and stored after the topic's end, where no consumer gets it once the topic was loaded again. Writes are
held back while topics are ended, but each producer gets a message through now and then. So topics are checked after
that, and those that were opened again are ended again, after these messages.

In the same moment the broker may fail to store the end. It fences the topic then: it does not end it any more, and does
not serve it before it is loaded again (4.0.8). Such topics are unloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasStore
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import InternalInfo, InternalStats, Position
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients
from models.defects import has_defect

_REOPENS = "TERMINATE_REOPENS"
_TRIES = 3
_FENCED = "Fenced"
# Of a topic that is being unloaded or deleted.
_CLOSED = frozenset(("Closed", "FencedForDeletion"))


def end_again(
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
    if not may_open_again(task):
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


def may_open_again(task: AnyBlueGreenTask) -> bool:
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
        if may_open_again(task) and not stats.terminated and stats.state not in _CLOSED:
            info = stored(task.blue, topic)
            return stats if info and info.marked else None
    return None


def _unload(task: AnyBlueGreenTask, guard: NamespaceGuard, topic: TopicName) -> str:
    # It is gone, or was unloaded since.
    with suppress(AdminNotFound, AdminServerError):
        task.change_blue(
            look=lambda admin: admin.topics.internal_info(topic),
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
        look=lambda admin: admin.topics.internal_info(topic),
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
