"""LOAD: all topics of a batch are in memory, and who uses them is written down."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from activities.blue_green.asked_again import require_as_asked
from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard
from activities.blue_green.green_ready import green_trouble
from activities.blue_green.movable import require_movable
from activities.blue_green.provision import provision_all
from activities.blue_green.provisioning import Scope
from activities.blue_green.records import sent_away
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.blue_green.throttle import let_go_of_ended
from activities.blue_green.topics import TopicLook, look_at, show_blue, topics_of
from activities.blue_green.way_back import take_back, was_blue
from activities.lifecycle.step import step
from activities.pulsar.coverage import require_covered
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreUnreachable
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.blue_green.claims import FLIPPED, Stage, TopicClients
from models.blue_green.results import Loaded
from models.lifecycle.status import ProgressTask, ProgressUnit

_NAMED = 3


@step(BatchTask)
def load(task: BatchTask) -> Loaded:
    """Load every topic of the batch, and keep in blue's metadata store who produces and consumes.

    Raises:
        StoreConflict: both sides differ in what cannot be created, or topics cannot be moved as they are used now.
        ApplicationError: something is in use that PRECHECK would refuse.
    """
    guards, store = task.guards, task.store
    require_covered(task.input, lambda census: task.survey(census, task.input.batch))
    found: list[TopicLook] = []
    for guard in guards:
        let_go_of_ended(task, guard)
    there = sent_away(task, store, [guard.namespace for guard in guards])
    # What an earlier run flipped stands on green.
    begun = [guard for guard in guards if guard.namespace not in there]
    for guard in guards:
        if guard.namespace in there and guard.require().stage not in FLIPPED:
            guard.note(stage=Stage.FLIPPED)
    require_as_asked(task, begun)  # mutant: blue-green/load-without-what-precheck-asked
    for guard in begun if was_blue(task) else ():
        # Asked before topics of green are deleted, and again of all topics once green was brought up to date.
        looks = look_at_all(task, topics_of(task.blue, guard.namespace))
        # mutant: blue-green/topics-of-green-are-deleted-before-the-refusal
        require_movable(task, [(look.topic, look.stats) for look in looks if look.stats])
    for guard in begun:
        # Whoever copies does so anew; what an earlier run copied may be gone from green.
        guard.note(stage=Stage.CLAIMED, copied_in="")
        take_back(task, guard)
    provision_batch(task, begun)
    _await_green(task, begun)
    for guard in guards:
        looks = look_at_all(task, topics_of(task.blue, guard.namespace))
        if guard in begun:
            require_movable(task, [(look.topic, look.stats) for look in looks if look.stats])
            save_clients(store, guard, {look.topic: clients_of(look.stats) for look in looks if look.stats})
        found += looks
    stats = [look.stats for look in found if look.stats]
    return Loaded(
        topics=len(stats),
        producers=sum(len(one.publishers) for one in stats),
        consumers=sum(len(sub.consumers) for one in stats for sub in one.client_subscriptions.values()),
        backlog=show_blue(task.context, stats),
    )


def _await_green(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    """Ask green what is asked again right before the flip, where nothing waits for the answer.

    Raises:
        StoreUnreachable: it does not take clients now; the step is tried again.
    """
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue, name)]
    if names and (trouble := green_trouble(task, names, topics)):
        raise StoreUnreachable(f"{task.input.green_cluster} does not take the clients of {', '.join(names)}: {trouble}")


def provision_batch(
    task: AnyBlueGreenTask,
    guards: Sequence[NamespaceGuard],
    topics: Collection[TopicName] | None = None,
    *,
    served: bool = False,
) -> None:
    """Create on green what came to blue since PROVISION, partitions among it.

    Args:
        task: the step.
        guards: the namespaces.
        topics: whole topics, alone; None for everything.
        served: green serves clients by now, who may have sent to it.

    Raises:
        StoreConflict: both sides differ in what cannot be created.
    """
    for guard in guards:
        found = provision_all(task, [guard.namespace], guard.require, Scope(topics, grow=True, served=served))
        if found.left:
            raise StoreConflict(
                f"{guard.namespace} differs on {task.input.green_cluster} in {found.left_count} things: "
                f"{'; '.join(found.left[:_NAMED])}"
            )


def look_at_all(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[TopicLook]:
    """Look at topics of blue, which loads them; tells how far it is."""
    done = 0

    def one(topic: TopicName) -> TopicLook:
        nonlocal done
        look = look_at(task.blue, topic)
        done += 1
        return look

    task.context.measure(ProgressTask.LOAD, ProgressUnit.TOPICS, len(topics), lambda: done)
    return task.each(topics, one)


def clients_of(stats: TopicStats) -> TopicClients:
    """Who uses a topic: durable subscriptions only, since a reader's ends with the reader."""
    durable = stats.durable_subscriptions
    return TopicClients(
        producers=tuple(sorted(one.producer_name for one in stats.publishers)),
        consumers={name: len(sub.consumers) for name, sub in durable.items()},
        properties={name: found for name, sub in durable.items() if (found := sub.subscription_properties)},
        replicated=tuple(name for name, sub in durable.items() if sub.is_replicated),
    )


def note_consumers(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> None:
    """Note subscriptions that have got consumers since LOAD: what they have left is not given up as idle."""
    for guard in guards:
        before = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
        looks = task.each(before, lambda topic: look_at(task.blue, topic))
        now = {look.topic: clients_of(look.stats) for look in looks if look.stats}
        after = {topic: _with_consumers(clients, now.get(topic, TopicClients())) for topic, clients in before.items()}
        if after != before:
            save_clients(store, guard, after)


def _with_consumers(before: TopicClients, now: TopicClients) -> TopicClients:
    consumers = {name: count or now.consumers.get(name, 0) for name, count in before.consumers.items()}
    return before.model_copy(update={"consumers": consumers})
