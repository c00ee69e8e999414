"""FLIP: the flag of each namespace of a batch, until brokers have terminated all its topics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.blue_green.backlogs import carry_again
from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard
from activities.blue_green.flags import require_answers, sends_to_green, urls_of, wait_until_seen
from activities.blue_green.green_ready import green_trouble
from activities.blue_green.late import create_late, provision_late
from activities.blue_green.load import look_at_all, note_consumers
from activities.blue_green.movable import await_movable
from activities.blue_green.overridden_policies import AUTO_CREATION, put_back
from activities.blue_green.reopened import end_again
from activities.blue_green.throttle import await_quiet, let_go, require_quiet, require_seen_quiet, throttle
from activities.blue_green.topics import is_terminated, look_at, topics_of
from activities.lifecycle.step import step
from activities.pulsar.overridden_policies import LOOK_EVERY, hold, wait_until_known
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from models.blue_green.claims import FLIPPED, Stage
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Flipped
from models.lifecycle.failures import some
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind

_BLOCKED_EVERY = 2.0
_NAMED = 10


class NotTerminated(StoreContention):
    """Brokers have not terminated all topics in time."""


@step(BatchTask)
def flip(task: BatchTask) -> Flipped:
    """Send the clients of a batch to green, and wait until each topic is terminated; then writes are released.

    Raises:
        StoreConflict: nothing is flipped, or topics are not terminated in time; writes are held back still.
    """
    guards, store = task.guards, task.store
    _require_url(task)
    begun = [guard for guard in guards if guard.require().stage not in FLIPPED or not read_flag(store, guard.namespace)]
    if begun:
        require_answers(task)  # mutant: blue-green/flag-that-a-silent-broker-does-not-see
    _require_green(task, begun)  # mutant: blue-green/flip-without-a-check-of-green
    await_movable(task, begun, drained=True)
    late = provision_late(task, begun, store)  # mutant: blue-green/flip-without-what-came-late
    carried = carry_again(task, guards, store, anew=late)  # mutant: blue-green/flip-without-what-came-after-the-copy
    if task.input.idle_subscriptions is IdleSubscriptions.SKIP:
        note_consumers(task, begun, store)  # mutant: blue-green/skip-of-what-is-in-use-at-the-flag
    since = require_quiet(task, begun)  # mutant: blue-green/flip-without-a-check-of-the-limit
    for guard in begun:
        guard.note(stage=Stage.FLIPPED, flipped_in=task.attempt.run_id)
    try:
        return _send_away(task, guards, store, quiet_since=since).model_copy(update={"carried": carried})
    except NotTerminated as error:
        raise StoreConflict(str(error)) from error


def end_topics(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Flipped:
    """Bring namespaces to the end of their flip that was begun at some time, with writes held back.

    Raises:
        StoreContention: writes do not become quiet, or topics are not terminated in time; writes are held back still.
    """
    since = hold_writes(task, [guard for guard in guards if not read_flag(store, guard.namespace)])
    for guard in guards:
        guard.note(stage=Stage.FLIPPED)
    return _send_away(task, guards, store, quiet_since=since)


def end_or_give_up(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> str:
    """Do as `end_topics`; return why topics are not ended once the step has taken `drain_timeout`, empty otherwise.

    Raises:
        StoreContention: topics are not ended yet, and the next attempt tries it again.
    """
    try:
        end_topics(task, guards, store)
    except StoreContention as error:
        if not is_overdue(task):  # mutant: blue-green/drain-without-an-end
            raise
        return str(error)
    return ""


def is_overdue(task: AnyBlueGreenTask) -> bool:
    """Return whether all attempts of a step together have taken `drain_timeout`."""
    return task.context.age > task.input.drain_timeout.total_seconds()


def hold_writes(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
    """As in QUIESCE, for topics that are not terminated; returns since when writes are seen to be held back."""
    since = time.monotonic()
    left = {
        guard: [topic for topic in topics_of(task.blue, guard.namespace) if not is_terminated(task.blue, topic)]
        for guard in guards
    }
    left = {guard: names for guard, names in left.items() if names}
    for guard in left:
        throttle(task, guard)
    if left:
        quiet, since = await_quiet(task, left, time.monotonic())
        if quiet.busy:
            raise StoreContention(f"topics take messages in spite of the limit: {', '.join(quiet.busy)}")
    return since


def _send_away(
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
    kept = tuple(why for guard in guards if (why := let_go(task, guard)))
    return Flipped(
        topics=count,
        seconds=seconds,
        kept=kept,
        reopened=tuple(reopened.values())[:_NAMED],
    )


def reload(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]) -> None:
    """Load topics of a namespace that were unloaded amid the flip: the flag is taken off for that, and set again.

    A flag that is set keeps brokers from loading a topic, so that nobody could drain it any more. Until it is set again
    blue serves clients that begin there: writes are held back, also where an earlier run has flipped the namespace and
    released them, and no client creates a topic that only green has.

    Raises:
        StoreContention: writes do not become quiet, or brokers do not see the change in time.
    """
    hold_writes(task, [guard])  # mutant: blue-green/flag-taken-off-without-a-limit
    hold(guard, AUTO_CREATION)  # mutant: blue-green/clients-create-topics-while-the-flag-is-off
    wait_until_known(guard, AUTO_CREATION, task.context, task.blue_brokers)
    task.context.waiting_for(WaitKind.CLIENTS, f"{len(topics)} topics to be loaded again, {topics[0]} among them")
    set_flag(store, guard.namespace, guard.require, migrated=False)
    try:
        wait_until_seen(task, guard.namespace, migrated=False)
        look_at_all(task, topics)
    finally:
        set_flag(store, guard.namespace, guard.require, migrated=True)
    wait_until_seen(task, guard.namespace, migrated=True)
    put_back(task, guard, AUTO_CREATION)
    task.context.waits_no_more()


def _require_url(task: AnyBlueGreenTask) -> None:
    if not sends_to_green(task):
        known = task.blue.clusters.migration(task.input.cluster)
        raise StoreConflict(
            f"brokers of {task.input.cluster} would send clients to {known and known.migrated_cluster_url}, and not to "
            f"{urls_of(task.input.green)}; somebody has changed the address, so nothing is flipped"
        )


def _require_green(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue, name)]
    if names and (trouble := green_trouble(task, names, topics)):
        raise StoreConflict(
            f"{task.input.green_cluster} does not take the clients of {', '.join(names)} now, so nothing is flipped: "
            f"{trouble}"
        )


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
                reopened |= end_again(task, guard, store, names, unended=waiting)
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
    blocked = [look.topic for look in task.each(topics, lambda topic: look_at(task.blue, topic)) if look.blocked]
    if blocked:
        reload(task, guard, store, blocked)
