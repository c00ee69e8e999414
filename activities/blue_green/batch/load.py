"""LOAD: all topics of a batch are in memory, and who uses them is written down."""

from __future__ import annotations

from collections.abc import Sequence

from activities.blue_green.checks.readiness import green_not_ready_reason, recheck_namespaces
from activities.blue_green.checks.use import require_movable
from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard
from activities.blue_green.failback import reopen_namespace, was_blue
from activities.blue_green.namespace_redirect import redirected_namespaces
from activities.blue_green.provisioning.late_topics import provision_batch
from activities.blue_green.saved_clients import clients_of, save_clients
from activities.blue_green.topics import TopicState, load_topics, report_blue_backlog, topics_of
from activities.blue_green.write_limit import lift_limit_if_terminated
from activities.lifecycle.step import step
from activities.pulsar.coverage import require_covered
from clients.errors import StoreUnreachable
from models.blue_green.claims import FLIPPED, Stage
from models.blue_green.results import Loaded


@step(BatchTask)
def load(task: BatchTask) -> Loaded:
    """Load every topic of the batch, and keep in blue's metadata store who produces and consumes.

    Raises:
        StoreConflict: both sides differ in what cannot be created, or topics cannot be moved as they are used now.
        ApplicationError: something is in use that PRECHECK would refuse.
    """
    guards, store = task.guards, task.store
    require_covered(task.input, lambda census: task.survey(census, task.input.batch))
    found: list[TopicState] = []
    for guard in guards:
        lift_limit_if_terminated(task, guard)
    there = redirected_namespaces(task, store, [guard.namespace for guard in guards])
    # What an earlier run flipped stands on green.
    begun = [guard for guard in guards if guard.namespace not in there]
    for guard in guards:
        if guard.namespace in there and guard.require().stage not in FLIPPED:
            guard.note(stage=Stage.FLIPPED)
    recheck_namespaces(task, begun)  # mutant: blue-green/load-without-what-precheck-asked
    for guard in begun if was_blue(task) else ():
        # Asked before topics of green are deleted, and again of all topics once green was brought up to date.
        looks = load_topics(task, topics_of(task.blue, guard.namespace))
        # mutant: blue-green/topics-of-green-are-deleted-before-the-refusal
        require_movable(task, [(look.topic, look.stats) for look in looks if look.stats])
    for guard in begun:
        # Whoever copies does so again; what an earlier run copied may be gone from green.
        guard.note(stage=Stage.CLAIMED, copied_in="")
        reopen_namespace(task, guard)
    provision_batch(task, begun)
    _await_green(task, begun)
    for guard in guards:
        looks = load_topics(task, topics_of(task.blue, guard.namespace))
        if guard in begun:
            require_movable(task, [(look.topic, look.stats) for look in looks if look.stats])
            save_clients(store, guard, {look.topic: clients_of(look.stats) for look in looks if look.stats})
        found += looks
    stats = [look.stats for look in found if look.stats]
    return Loaded(
        topics=len(stats),
        producers=sum(len(stat.publishers) for stat in stats),
        consumers=sum(len(sub.consumers) for stat in stats for sub in stat.client_subscriptions.values()),
        backlog=report_blue_backlog(task.context, stats),
    )


def _await_green(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    """Ask green what is asked again right before the flip, where nothing waits for the answer.

    Raises:
        StoreUnreachable: it does not take clients now; the step is tried again.
    """
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue, name)]
    if names and (trouble := green_not_ready_reason(task, names, topics)):
        raise StoreUnreachable(f"{task.input.green_cluster} does not take the clients of {', '.join(names)}: {trouble}")
