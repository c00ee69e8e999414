"""VERIFY: compare a batch on both clusters after the drain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, guards_that_move
from activities.blue_green.listing import scalable_topics
from activities.blue_green.saved_clients import saved_clients
from activities.blue_green.termination import may_reopen, terminate_again
from activities.blue_green.topics import check_topic, entries_of, named, needed_by, topics_of
from activities.lifecycle.step import step
from activities.pulsar.stored_topics import after_end, stored
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from models.blue_green.claims import Stage, TopicClients
from models.blue_green.results import BatchCheck
from models.lifecycle.failures import FailedItem

_NAMED = 10
_NOT_TERMINATED = "it is not terminated on blue"
_TERMINATED_BY_CLIENT = (
    "a client terminated it on blue right before the flag, and it takes messages on green: terminate it there, and "
    "delete it on blue"
)
_SCALABLE = "it is a scalable topic: the flag cuts its clients off, and green has no such topic"


class _Checked(NamedTuple):
    """Comparison of a topic on both clusters.

    Attributes:
        wrong: faults in words; empty for none.
        subscriptions: number of its subscriptions on green.
        unused: subscriptions of green without consumers that blue did not have right before the flag.
    """

    wrong: str
    subscriptions: int = 0
    unused: tuple[str, ...] = ()


@step(BatchTask)
def verify(task: BatchTask) -> BatchCheck:
    """Check that nothing of each namespace is in use on blue, and that green has all its topics and subscriptions."""
    guards, store = task.guards, task.store
    faults: list[FailedItem] = []
    topics = subscriptions = 0
    unused: list[str] = []
    for guard in guards_that_move(guards):
        terminate_again(task, guard, store, topics_of(task.blue.admin, guard.namespace))
        saved = saved_clients(store, guard.namespace)
        names = sorted({*saved, *map(str, topics_of(task.blue.admin, guard.namespace))})
        own = guard.require().flipped_in == task.attempt.run_id
        checked = task.each(
            names, lambda name, saved=saved, own=own: _check(task, TopicName.parse(name), saved, flipped=own)
        )
        if any(topic.wrong for topic in checked):
            # Keeps the cleanup from deleting these topics on blue.
            guard.note(stage=Stage.FLIPPED)
        for name, topic in zip(names, checked, strict=True):
            faults += [FailedItem(path=name, reason=topic.wrong)] if topic.wrong else []
            unused += [f"{subscription} of {name}" for subscription in topic.unused]
        # Scalable topics may be created between the last check and the flag.
        faults += [FailedItem(path=name, reason=_SCALABLE) for name in scalable_topics(task, guard.namespace)]
        topics += len(names)
        subscriptions += sum(topic.subscriptions for topic in checked)
    return BatchCheck(
        topics=topics,
        subscriptions=subscriptions,
        faults=named(faults),
        fault_count=len(faults),
        unused=tuple(unused[:_NAMED]),
        unused_count=len(unused),
    )


def _check(task: AnyBlueGreenTask, topic: TopicName, saved: Mapping[str, TopicClients], *, flipped: bool) -> _Checked:
    """Compare a topic; `flipped` is true if this run flipped its namespace, so that all topics were saved before."""
    wrong: list[str] = []
    blue = stored(task.blue.admin, topic)
    state = check_topic(task.blue.admin, topic) if blue else None
    if blue and not blue.migrated:
        wrong.append(_NOT_TERMINATED if blue.terminated_position is None else _TERMINATED_BY_CLIENT)
    # mutant: blue-green/topics-that-came-after-the-flip
    if blue and flipped and str(topic) not in saved and (entries := entries_of(blue)):
        wrong.append(f"it was created on blue after the flip, and {entries:,} entries are only on blue")
    if blue and may_reopen(task) and (after := after_end(blue)):
        wrong.append(f"blue has messages after the topic's end, and no consumer gets them (#26680): {after}")
    if str(topic) in saved and (missed := saved[str(topic)].missed):
        wrong.append(
            "subscriptions lack messages that blue took after it deleted the subscriptions (#26680): "
            f"{', '.join(missed)}"
        )
    if state and state.stats:
        busy = [name for name, sub in state.stats.client_subscriptions.items() if sub.msg_backlog or sub.consumers]
        wrong += [f"blue still has {len(state.stats.publishers)} producers"] if state.stats.publishers else []
        wrong += [f"blue still has subscriptions with messages or consumers: {', '.join(busy)}"] if busy else []
    # mutant: blue-green/undrainable-replication-is-not-wrong
    elif state and state.blocked and blue and (needs := needed_by(blue)):
        wrong.append(f"it cannot be loaded on blue, and its messages there are needed by {needs}")
    try:
        on_green = set(task.green.admin.subscriptions.names(topic))
    except AdminNotFound:
        # An earlier run has forgotten the clients of what it had moved: since then, clients may have deleted the topic.
        # mutant: blue-green/topics-that-were-deleted-after-their-move
        wrong += ["green has no such topic"] if flipped or str(topic) in saved else []
        return _Checked("; ".join(wrong))
    before = set(saved[str(topic)].consumers if str(topic) in saved else ())
    lacking = sorted(before - on_green)
    wrong += [f"green lacks the subscriptions {', '.join(lacking)}"] if lacking else []
    # For example deleted on blue between PROVISION and the flag: green keeps messages for them.
    unused = _unused(task, topic, on_green - before) if str(topic) in saved and on_green - before else ()
    return _Checked("; ".join(wrong), len(on_green), unused)


def _unused(task: AnyBlueGreenTask, topic: TopicName, names: Collection[str]) -> tuple[str, ...]:
    """Return the subscriptions of green that have no consumer, from some names."""
    stats = check_topic(task.green.admin, topic).stats
    subscriptions = stats.client_subscriptions if stats else {}
    return tuple(sorted(name for name, sub in subscriptions.items() if name in names and not sub.consumers))
