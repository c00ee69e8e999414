"""QUIESCE: create on green what is new on blue, then hold back writes to a batch."""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.blue_green.checks.readiness import expiring_topics, recheck_namespaces
from activities.blue_green.checks.use import await_movable
from activities.blue_green.context import BatchTask, NamespaceGuard
from activities.blue_green.expiration import restart_expiration
from activities.blue_green.policies import INACTIVE
from activities.blue_green.provisioning.late_topics import provision_batch, provision_late
from activities.blue_green.write_limit import throttled_rate, topics_by_guard, wait_until_quiet
from activities.lifecycle.step import step
from activities.pulsar.overridden_policies import override_policies
from models.blue_green.claims import FLIPPED, Stage
from models.blue_green.results import Quiet


@step(BatchTask)
def catch_up(task: BatchTask) -> None:
    """Create on green what was created on blue since LOAD, which may be long ago: after a copy, or a pause.

    Subscriptions that are on green start to expire again, also those of namespaces that an earlier run flipped.

    Raises:
        StoreConflict: green has differences that cannot be removed, or the use of a topic keeps it from moving.
        ApplicationError: a feature is in use that PRECHECK would refuse.
    """
    guards, store = task.guards, task.store
    # A throttled namespace of blue has a publish limit that must not be copied to green.
    waiting = [guard for guard in _not_flipped(guards) if guard.require().stage is not Stage.THROTTLED]
    # An earlier run did not drain these in time, and their consumers may still read on blue.
    # mutant: blue-green/subscriptions-of-what-is-not-drained
    undrained = [guard for guard in guards if guard.require().stage is Stage.FLIPPED]
    for guard, topics in expiring_topics(task, undrained):
        restart_expiration(task, guard, topics)
    # Before subscriptions are created, whose expiration begins then: there may be many, and more come to blue.
    for guard, topics in recheck_namespaces(task, waiting):
        restart_expiration(task, guard, topics)  # mutant: blue-green/subscriptions-expire-since-their-creation
    provision_late(task, waiting, store)
    provision_batch(task, waiting, served=True)  # mutant: blue-green/what-changed-after-load
    await_movable(task, waiting, drained=False)


@step(BatchTask)
def quiesce(task: BatchTask) -> Quiet:
    """Throttle the namespaces of a batch, and wait until no messages are sent to their topics."""
    guards = task.guards
    held = _not_flipped(guards)
    begun = time.monotonic()
    for guard in held:
        guard.note(stage=Stage.THROTTLED)
        override_policies(guard, INACTIVE, throttled_rate(task, guard))  # mutant: blue-green/topics-that-brokers-delete
    return wait_until_quiet(task, topics_by_guard(task, held), begun)


def _not_flipped(guards: Sequence[NamespaceGuard]) -> list[NamespaceGuard]:
    """Return the guards without those of namespaces that an earlier run flipped: these have no writes on blue."""
    return [guard for guard in guards if guard.require().stage not in FLIPPED]
