"""VERIFY: a batch on both sides, after its topics were drained."""

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
_SCALABLE = "it is a scalable topic: the flag cuts its clients off, and green has no such topic"


class _Checked(NamedTuple):
    """A topic on both sides.

    Attributes:
        wrong: what is wrong with it; empty for nothing.
        subscriptions: how many it has on green.
        unused: those among them that blue did not have when its clients were counted, and nobody uses.
    """

    wrong: str
    subscriptions: int = 0
    unused: tuple[str, ...] = ()


@step(BatchTask)
def verify(task: BatchTask) -> BatchCheck:
    """Compare each namespace: nothing is left on blue, and green has every topic with its subscriptions."""
    guards, store = task.guards, task.store
    faults: list[FailedItem] = []
    topics = subscriptions = 0
    unused: list[str] = []
    for guard in guards_that_move(guards):
        terminate_again(task, guard, store, topics_of(task.blue, guard.namespace))
        known = saved_clients(store, guard.namespace)
        names = sorted({*known, *map(str, topics_of(task.blue, guard.namespace))})
        own = guard.require().flipped_in == task.attempt.run_id
        checked = task.each(
            names, lambda name, known=known, own=own: _check(task, TopicName.parse(name), known, flipped=own)
        )
        if any(one.wrong for one in checked):
            # What is left on blue is not deleted.
            guard.note(stage=Stage.FLIPPED)
        for name, one in zip(names, checked, strict=True):
            faults += [FailedItem(path=name, reason=one.wrong)] if one.wrong else []
            unused += [f"{subscription} of {name}" for subscription in one.unused]
        # One that came right after the last check before the flag.
        faults += [FailedItem(path=name, reason=_SCALABLE) for name in scalable_topics(task, guard.namespace)]
        topics += len(names)
        subscriptions += sum(one.subscriptions for one in checked)
    return BatchCheck(
        topics=topics,
        subscriptions=subscriptions,
        faults=named(faults),
        fault_count=len(faults),
        unused=tuple(unused[:_NAMED]),
        unused_count=len(unused),
    )


def _check(task: AnyBlueGreenTask, topic: TopicName, known: Mapping[str, TopicClients], *, flipped: bool) -> _Checked:
    """Check one topic; `flipped` says that this run has flipped its namespace, and noted all topics before."""
    wrong: list[str] = []
    blue = stored(task.blue, topic)
    look = check_topic(task.blue, topic) if blue else None
    if blue and not blue.migrated:
        wrong.append("it is not terminated on blue")
    # mutant: blue-green/topics-that-came-after-the-flip
    if blue and flipped and str(topic) not in known and (entries := entries_of(blue)):
        wrong.append(f"it came to blue after the flip, and {entries:,} entries are on blue only")
    if blue and may_reopen(task) and (after := after_end(blue)):
        wrong.append(f"blue has messages after its end, which no consumer gets (#26680): {after}")
    if str(topic) in known and (missed := known[str(topic)].missed):
        wrong.append(f"subscriptions lack what blue took after they had left (#26680): {', '.join(missed)}")
    if look and look.stats:
        busy = [name for name, sub in look.stats.client_subscriptions.items() if sub.msg_backlog or sub.consumers]
        wrong += [f"blue still has {len(look.stats.publishers)} producers"] if look.stats.publishers else []
        wrong += [f"blue still has subscriptions with messages or consumers: {', '.join(busy)}"] if busy else []
    # mutant: blue-green/undrainable-replication-is-not-wrong
    elif look and look.blocked and blue and (needs := needed_by(blue)):
        wrong.append(f"it cannot be loaded on blue, and is needed there: {needs}")
    try:
        there = set(task.green.subscriptions.names(topic))
    except AdminNotFound:
        return _Checked("; ".join([*wrong, "green has no such topic"]))
    before = set(known[str(topic)].consumers if str(topic) in known else ())
    lacking = sorted(before - there)
    wrong += [f"green lacks the subscriptions {', '.join(lacking)}"] if lacking else []
    # Deleted on blue between PROVISION and LOAD, for example: green keeps messages for them.
    unused = _unused(task, topic, there - before) if str(topic) in known and there - before else ()
    return _Checked("; ".join(wrong), len(there), unused)


def _unused(task: AnyBlueGreenTask, topic: TopicName, names: Collection[str]) -> tuple[str, ...]:
    """Those of green's subscriptions that have no consumer."""
    stats = check_topic(task.green, topic).stats
    there = stats.client_subscriptions if stats else {}
    return tuple(sorted(name for name, sub in there.items() if name in names and not sub.consumers))
