"""Rollback of a batch: free before its topics are terminated; after that it must change the metadata store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, BlueGreenTask, NamespaceGuard, holds_claim
from activities.blue_green.failback import restore_redirect, used_on_green
from activities.blue_green.namespace_redirect import redirected_namespaces, wait_until_seen
from activities.blue_green.policies import INACTIVE, restore_policy
from activities.blue_green.reopened_topics import note_ends, noted_ends, restore_subscriptions
from activities.blue_green.termination import terminate_or_give_up
from activities.blue_green.topics import check_topic, topics_of
from activities.blue_green.write_limit import lift_publish_limit
from activities.lifecycle.step import step
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader, CasStore, retry
from clients.errors import StoreContention, StoreNotFound
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.admin.topics import Position
from clients.pulsar.managed_ledgers import without_termination
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import rewrite_flag, set_flag
from models.blue_green.claims import Stage
from models.blue_green.results import Undone
from models.lifecycle.failures import NAMED, summarize
from models.lifecycle.status import WaitKind

# One check before flags are taken off, one after running sweeps, and two more if these sweeps terminated topics.
_CHECKS = 4
_SWEEP_ENDS_WITHIN = 6.0
_LOAD_EVERY = 0.3
_LOADED_WITHIN = 30.0


@step(BatchTask)
def undo(task: BatchTask) -> Undone:
    """Roll a batch back, so that clients stay on blue; complete the flip of namespaces that would lose messages."""
    if not holds_claim(task, task.store):
        # The batch of an earlier run must end, since the batch of the next run has the same id.
        return Undone(undone=True, notes=("this run has ended, or a later run took over these namespaces",))
    return _undo(task, task.guards, task.store)


def _undo(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Undone:
    """Keep the clients of namespaces on blue, or complete the flip where that is impossible."""
    # Taken first, so that late writes of an earlier attempt find a changed record.
    # mutant: blue-green/undo-of-an-earlier-run
    ours = [guard for guard in guards if guard.take().flipped_in == task.attempt.run_id]
    others = [guard for guard in guards if guard not in ours]
    flagged = {guard.namespace for guard in others if rewrite_flag(store, guard.namespace, guard.require)}
    redirected = redirected_namespaces(task, store, [guard.namespace for guard in others]) | flagged
    for guard in others:
        if guard.namespace not in redirected:
            _keep_on_blue(task, guard)
    obstacles = dict.fromkeys(sorted(redirected), "an earlier run redirected its clients to green; its flip continues")
    silent: set[str] = set()
    our_obstacles, restored = _take_flags_off(task, ours, store, silent)
    obstacles |= our_obstacles
    flipping = [guard for guard in guards if guard.namespace in obstacles]
    # DRAIN continues with topics that are not terminated in time.
    # mutant: blue-green/topics-that-cannot-be-undone-are-not-flipped
    unended = terminate_or_give_up(task, flipping, store) if flipping else ""
    staying = [guard for guard in guards if guard not in flipping]
    notes = [f"the broker {broker} of {task.input.cluster} does not answer; restart it" for broker in sorted(silent)]
    notes += [unended] if unended else []
    notes += [why for guard in staying if (why := restore_redirect(task, guard, store))]
    # Also without any terminated topic: brokers redirect clients of a topic that is not loaded, or is new, at once.
    notes += _notes_on_use(task, store, [guard.namespace for guard in ours if guard in staying])
    terminated = sum(len(_terminated(task, guard)) for guard in flipping)
    why = next((f"{name}: {obstacle}" for name, obstacle in obstacles.items()), "")
    return Undone(undone=not obstacles, terminated=terminated, restored=len(restored), why=why, notes=tuple(notes))


@step(BlueGreenTask)
def undo_terminated_batch(task: BlueGreenTask, namespaces: list[str]) -> Undone:
    """Roll back the namespaces of a batch whose workflow was terminated by an operator."""
    with task.blue.store() as store:
        if not holds_claim(task, store):
            return Undone(undone=True)
        return _undo(task, [NamespaceGuard(store, task.attempt, name) for name in namespaces], store)


def _take_flags_off(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, silent: set[str]
) -> tuple[dict[str, str], set[TopicName]]:
    """Take flags off, and check twice whether topics were terminated in between.

    A broker that has started a sweep completes it after the flag was taken off. Until then writes are held back: a
    producer that sends to a topic that is terminated without a flag gets the error that the topic has ended. The store
    decides: brokers that do not answer are added to `silent`, and writes do not wait for them.

    Returns:
        Namespaces whose flip must be completed, each with the reason; topics whose termination was removed.
    """
    obstacles: dict[str, str] = {}
    restored: set[TopicName] = set()
    waiting = list(guards)
    for check in range(_CHECKS):
        changed: list[NamespaceGuard] = []
        for guard in waiting:
            fresh = dict(_terminated(task, guard))
            ended = {**noted_ends(store, guard), **fresh}
            if why := _obstacle(task, guard, store, list(ended)):
                obstacles[guard.namespace] = why
            elif not fresh and check:
                note_ends(store, guard, {})
                _keep_on_blue(task, guard)
            else:
                _clear_flag(task, guard, store, silent)
                # Clients that were redirected before may have connected to green by now.
                if why := _obstacle(task, guard, store, list(ended)):
                    obstacles[guard.namespace] = why
                    continue
                note_ends(store, guard, ended)  # mutant: blue-green/ends-that-were-not-recorded
                for topic, position in ended.items():
                    if topic in fresh:
                        _unterminate(task, guard, store, topic)  # mutant: blue-green/termination-is-not-taken-back
                    # At once: producers send to the topic from now on, if the limit is lifted for any reason.
                    # mutant: blue-green/subscriptions-are-not-made-again
                    restore_subscriptions(task, guard, store, topic, position)
                restored |= set(ended)
                changed.append(guard)
        waiting = changed
        if waiting:
            task.context.pause(_SWEEP_ENDS_WITHIN)
    if waiting:
        raise StoreContention(f"brokers still terminate topics of {waiting[0].namespace}, although its flag is off")
    return obstacles, restored


def _notes_on_use(task: AnyBlueGreenTask, store: CasReader, namespaces: Sequence[str]) -> list[str]:
    """Return notes on topics of namespaces that stay on blue, and that clients also use on green."""
    try:
        topics = [topic for namespace in namespaces for topic in topics_of(task.green.admin, namespace)]
        uses = task.each(topics, lambda topic: used_on_green(task, store, topic))
    except AdminUnreachable as error:
        # A rollback must not wait for green, which may be lost.
        return [f"could not check whether {task.input.green_cluster} has clients of {summarize(namespaces)}: {error}"]
    return [
        f"{topic} stays on {task.input.cluster}, and has clients or messages on {task.input.green_cluster} as well"
        for topic, used in zip(topics, uses, strict=True)
        if used
    ][:NAMED]


def _terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> list[tuple[TopicName, Position]]:
    """Return the topics of a namespace that the flip has terminated, each with its end; not what a client has ended."""
    topics = topics_of(task.blue.admin, guard.namespace)
    infos = task.each(topics, lambda topic: stored(task.blue.admin, topic))
    return [
        (topic, info.terminated_position)
        for topic, info in zip(topics, infos, strict=True)
        # mutant: blue-green/undo-counts-what-clients-terminated
        if info is not None and info.terminated_position is not None and info.migrated
    ]


def _obstacle(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasReader, terminated: Sequence[TopicName]) -> str:
    """Return why the termination of a namespace's topics cannot be removed; empty if it can."""
    if guard.require().skipped:  # mutant: blue-green/undo-of-skipped-backlogs
        return (
            f"backlogs that were copied to {task.input.green_cluster} are skipped on {task.input.cluster}; the flip "
            "continues"
        )
    if not terminated:
        return ""
    if not task.input.unterminate:
        return (
            f"{len(terminated)} topics are terminated on {task.input.cluster}, such as {terminated[0]}, and "
            '"unterminate" is not set; the flip continues'
        )
    try:
        used = task.each(terminated, lambda topic: used_on_green(task, store, topic))
    except AdminUnreachable as error:
        # Writes must not wait for green, which may be lost.
        return f"could not check whether {task.input.green_cluster} has clients or messages of these topics: {error}"
    if moved := [topic for topic, is_used in zip(terminated, used, strict=True) if is_used]:
        return (
            f"{len(moved)} topics have clients or messages on {task.input.green_cluster} already, such as {moved[0]}; "
            "to move them back, start a migration with blue and green swapped"
        )
    return ""


def _clear_flag(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, silent: set[str]) -> None:
    # Written in any case: an earlier attempt that froze before its write must find a changed version.
    with suppress(StoreNotFound):
        set_flag(store, guard.namespace, guard.require, migrated=False)
    # mutant: blue-green/rollback-that-waits-for-a-silent-broker
    wait_until_seen(task, guard.namespace, migrated=False, silent=silent)


def _keep_on_blue(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Release writes to a namespace that stays on blue, and restore its policies."""
    lift_publish_limit(task, guard)
    restore_policy(task, guard, INACTIVE)
    guard.note(stage=Stage.RETURNED, copied_in="")


def _unterminate(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName) -> None:
    """Remove the termination of a topic from the metadata store while no broker has loaded the topic.

    If a broker loads the topic in between, it has the old state in memory, and the topic is unloaded again.
    """
    path = topic.managed_ledger_path

    def change() -> None:
        task.blue.change_or_never(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.topics.unload(topic),
        )
        node = store.get(path)
        if node is None:
            return
        guard.require()
        store.set(path, without_termination(node.value), node.version)

    task.context.waiting_for(WaitKind.CLIENTS, f"{topic} to take messages again")
    for _ in range(int(_LOADED_WITHIN / _LOAD_EVERY)):
        retry(change, path)
        # A broker with the old state may have written it again.
        state = check_topic(task.blue.admin, topic)
        info = stored(task.blue.admin, topic)
        is_removed = info is not None and info.terminated_position is None
        if (
            state.stats is not None
            and is_removed
            and task.blue.admin.topics.internal_stats(topic).state == "LedgerOpened"
        ):
            task.context.clear_waiting()
            return
        task.context.pause(_LOAD_EVERY)
    raise StoreContention(f"{topic} is still terminated on {task.input.cluster}")
