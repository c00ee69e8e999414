"""FLIP: set the flag of each namespace of a batch, and wait until brokers have terminated its topics."""

from __future__ import annotations

from collections.abc import Sequence

from activities.blue_green.checks.readiness import green_not_ready_reason
from activities.blue_green.checks.use import await_movable
from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard
from activities.blue_green.copy.backlogs import repeat_final_copy
from activities.blue_green.namespace_redirect import has_begun_flip, require_answers, sends_to_green, urls_of
from activities.blue_green.provisioning.late_topics import provision_late
from activities.blue_green.saved_clients import note_consumers
from activities.blue_green.termination import NotTerminated, redirect_clients
from activities.blue_green.topics import topics_of
from activities.blue_green.write_limit import hold_writes, require_quiet
from activities.lifecycle.step import step
from clients.errors import StoreConflict
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import Stage
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Flipped


@step(BatchTask)
def flip(task: BatchTask) -> Flipped:
    """Redirect the clients of a batch to green, wait until its topics are terminated, and release writes.

    Raises:
        StoreConflict: nothing is flipped, or topics are not terminated in time; writes are still held back.
    """
    guards, store = task.guards, task.store
    _require_url(task)
    continued = [guard for guard in guards if has_begun_flip(task, guard, store)]
    begun = [guard for guard in guards if guard not in continued]
    if begun:
        require_answers(task)  # mutant: blue-green/flag-that-a-silent-broker-does-not-see
    _require_green(task, begun)  # mutant: blue-green/flip-without-a-check-of-green
    await_movable(task, begun, drained=True)
    provision_late(task, begun, store)  # mutant: blue-green/flip-without-what-came-late
    # mutant: blue-green/flip-without-what-came-after-the-copy
    copied = repeat_final_copy(task, guards, store)
    if task.input.idle_subscriptions is IdleSubscriptions.SKIP:
        note_consumers(task, begun, store)  # mutant: blue-green/skip-of-what-is-in-use-at-the-flag
    halfway = [guard for guard in continued if not read_flag(store, guard.namespace)]
    held_since = hold_writes(task, halfway)
    since = require_quiet(task, begun)  # mutant: blue-green/flip-without-a-check-of-the-limit
    if halfway:
        since = min(since, held_since)
    for guard in begun:
        guard.note(stage=Stage.FLIPPED, flipped_in=task.attempt.run_id)
    try:
        flipped = redirect_clients(task, guards, store, quiet_since=since)
        return flipped.model_copy(update={"final_copy": copied})
    except NotTerminated as error:
        raise StoreConflict(str(error)) from error


def _require_url(task: AnyBlueGreenTask) -> None:
    if not sends_to_green(task):
        flag = task.blue.admin.clusters.migration(task.input.cluster)
        raise StoreConflict(
            f"nothing is flipped: the address of {task.input.cluster} was changed. Its brokers would redirect clients "
            f"to {flag and flag.migrated_cluster_url}, and not to {urls_of(task.input.green)}"
        )


def _require_green(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue.admin, name)]
    if names and (reason := green_not_ready_reason(task, names, topics)):
        raise StoreConflict(
            f"nothing is flipped: {task.input.green_cluster} is not ready for the clients of {', '.join(names)}: "
            f"{reason}"
        )
