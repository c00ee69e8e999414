"""LOAD: load all topics of a batch on blue, and store their clients."""

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
    """Load every topic of the batch, and save its producers and consumers in blue's metadata store.

    Raises:
        StoreConflict: green has differences that cannot be removed, or the use of a topic keeps it from moving.
        ApplicationError: a feature is in use that PRECHECK would refuse.
    """
    task.wait_while_stopped()
    guards, store = task.guards, task.store
    require_covered(task.input, lambda census: task.blue.survey(census, task.input.batch))
    states: list[TopicState] = []
    for guard in guards:
        lift_limit_if_terminated(task, guard)
    redirected = redirected_namespaces(task, store, [guard.namespace for guard in guards])
    # Namespaces that an earlier run flipped are on green already.
    begun = [guard for guard in guards if guard.namespace not in redirected]
    for guard in guards:
        if guard.namespace in redirected and guard.require().stage not in FLIPPED:
            guard.note(stage=Stage.FLIPPED)
    recheck_namespaces(task, begun, before_copy=True)  # mutant: blue-green/load-without-what-precheck-asked
    for guard in begun if was_blue(task) else ():
        # Checked before topics of green are deleted, and again after green is up to date.
        loaded = load_topics(task, topics_of(task.blue.admin, guard.namespace))
        # mutant: blue-green/topics-of-green-are-deleted-before-the-refusal
        require_movable(task, [(state.topic, state.stats) for state in loaded if state.stats])
    for guard in begun:
        # SEED copies again: copies of an earlier run may have been deleted from green.
        guard.note(stage=Stage.CLAIMED, copied_in="", skipped=False)
        reopen_namespace(task, guard)
    provision_batch(task, begun)
    _await_green(task, begun)
    for guard in guards:
        loaded = load_topics(task, topics_of(task.blue.admin, guard.namespace))
        if guard in begun:
            require_movable(task, [(state.topic, state.stats) for state in loaded if state.stats])
            save_clients(store, guard, {state.topic: clients_of(state.stats) for state in loaded if state.stats})
        states += loaded
    stats = [state.stats for state in states if state.stats]
    return Loaded(
        topics=len(stats),
        producers=sum(len(topic.publishers) for topic in stats),
        consumers=sum(len(sub.consumers) for topic in stats for sub in topic.client_subscriptions.values()),
        backlog=report_blue_backlog(task.context, stats),
    )


def _await_green(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    """Check green as right before the flip, while writes are not held back yet.

    Raises:
        StoreUnreachable: green is not ready for clients; the step is tried again.
    """
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue.admin, name)]
    if names and (reason := green_not_ready_reason(task, names, topics)):
        raise StoreUnreachable(
            f"{task.input.green_cluster} is not ready for the clients of {', '.join(names)}: {reason}"
        )
