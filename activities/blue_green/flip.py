"""FLIP: the flag of each namespace of a batch, until brokers have terminated all its topics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.blue_green.backlogs import carry_again
from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.cut_messages import require_whole_messages
from activities.blue_green.flags import sends_to_green, urls_of, wait_until_seen
from activities.blue_green.green_ready import green_trouble
from activities.blue_green.late import create_late, provision_late
from activities.blue_green.load import look_at_all
from activities.blue_green.movable import await_movable
from activities.blue_green.reopened import end_again
from activities.blue_green.throttle import await_quiet, let_go, require_quiet, require_seen_quiet, throttle
from activities.blue_green.topics import look_at, topics_of
from activities.lifecycle.held_policies import LOOK_EVERY
from activities.lifecycle.stored_topics import stored
from clients.cas.store import CasStore
from clients.errors import StoreConflict, StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_flag import read_flag, set_flag
from models.blue_green.claims import FLIPPED, Stage
from models.blue_green.results import Flipped
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind

_BLOCKED_EVERY = 2.0
_NAMED = 10


def flip(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Flipped:
    """Send the clients of a batch to green, and wait until each topic is terminated; then writes are let go."""
    started = time.monotonic()
    _require_url(task)
    begun = [guard for guard in guards if guard.require().stage not in FLIPPED or not read_flag(store, guard.namespace)]
    _require_green(task, begun)
    await_movable(task, begun, drained=True)
    late = provision_late(task, begun, store)
    carried = carry_again(task, guards, store, anew=late)
    require_whole_messages(task, begun)
    since = require_quiet(task, begun)
    for guard in begun:
        guard.note(stage=Stage.FLIPPED, flipped_in=task.attempt.run_id)
    return _send_away(task, guards, store, started, quiet_since=since).model_copy(update={"carried": carried})


def end_topics(task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Flipped:
    """Bring namespaces to the end of their flip that was begun at some time, with writes held back.

    Raises:
        StoreContention: writes do not become quiet.
    """
    started = time.monotonic()
    since = _hold_writes(task, [guard for guard in guards if not read_flag(store, guard.namespace)])
    for guard in guards:
        guard.note(stage=Stage.FLIPPED)
    return _send_away(task, guards, store, started, quiet_since=since)


def _hold_writes(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> float:
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
    task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, begun: float, *, quiet_since: float
) -> Flipped:
    """From the flags on: clients of these namespaces are sent to green."""
    for guard in guards:

        def may_flip(guard: NamespaceGuard = guard) -> None:
            guard.require()
            require_seen_quiet(task, quiet_since)

        set_flag(store, guard.namespace, may_flip, migrated=True)
    for guard in guards:
        wait_until_seen(task, guard.namespace, migrated=True)
    left, count, reopened = _wait_until_terminated(task, guards, store, begun)
    seconds = round(time.monotonic() - begun, 3)
    kept = tuple(why for guard in guards if (why := let_go(task, guard)))
    create_late(task, guards, store)
    return Flipped(
        topics=count - len(left),
        seconds=seconds,
        left=tuple(map(str, left[:_NAMED])),
        kept=kept,
        reopened=tuple(reopened.values())[:_NAMED],
    )


def reload(task: BlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]) -> None:
    """Load topics of a namespace that were unloaded amid the flip: the flag is taken off for that, and set again.

    A flag that is set keeps brokers from loading a topic, so that nobody could drain it any more.
    """
    task.context.waiting_for(WaitKind.CLIENTS, f"{len(topics)} topics to be loaded again, {topics[0]} among them")
    set_flag(store, guard.namespace, guard.require, migrated=False)
    try:
        wait_until_seen(task, guard.namespace, migrated=False)
        look_at_all(task, topics)
    finally:
        set_flag(store, guard.namespace, guard.require, migrated=True)
    wait_until_seen(task, guard.namespace, migrated=True)
    task.context.waits_no_more()


def is_terminated(admin: PulsarAdminReader, topic: TopicName) -> bool:
    """Whether a topic's clients are sent elsewhere for good, or it is gone."""
    info = stored(admin, topic)
    return info is None or info.migrated


def _require_url(task: BlueGreenTask) -> None:
    if not sends_to_green(task):
        known = task.blue.clusters.migration(task.input.cluster)
        raise StoreConflict(
            f"brokers of {task.input.cluster} would send clients to {known and known.migrated_cluster_url}, and not to "
            f"{urls_of(task.input.green)}; somebody has changed the address, so nothing is flipped"
        )


def _require_green(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    names = [guard.namespace for guard in guards]
    topics = [topic for name in names for topic in topics_of(task.blue, name)]
    if names and (trouble := green_trouble(task, names, topics)):
        raise StoreConflict(
            f"{task.input.green_cluster} does not take the clients of {', '.join(names)} now, so nothing is flipped: "
            f"{trouble}"
        )


def _wait_until_terminated(
    task: BlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, begun: float
) -> tuple[list[TopicName], int, dict[TopicName, str]]:
    """The topics that are not terminated in time, the number of all, and those that were opened again."""
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
                reopened |= end_again(task, guard, store, names)
        if over:
            return left, count, reopened
        if time.monotonic() > next_look:
            for guard, names in topics.items():
                _reload_blocked(task, guard, store, [topic for topic in names if topic in left])
            next_look = time.monotonic() + _BLOCKED_EVERY
        task.context.pause(LOOK_EVERY)


def _reload_blocked(task: BlueGreenTask, guard: NamespaceGuard, store: CasStore, topics: Sequence[TopicName]) -> None:
    blocked = [look.topic for look in task.each(topics, lambda topic: look_at(task.blue, topic)) if look.blocked]
    if blocked:
        reload(task, guard, store, blocked)
