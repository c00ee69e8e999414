"""The way back of one batch: free before its topics are terminated, and by hand of the store after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, BlueGreenTask, NamespaceGuard, holds_claim
from activities.blue_green.failback import restore_redirect, used_on_green
from activities.blue_green.namespace_redirect import redirected_namespaces, wait_until_seen
from activities.blue_green.policies import INACTIVE, restore_policy
from activities.blue_green.saved_clients import save_clients, saved_clients
from activities.blue_green.termination import terminate_or_give_up
from activities.blue_green.topics import check_topic, topics_of
from activities.blue_green.write_limit import lift_publish_limit
from activities.lifecycle.step import step
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader, CasStore, retry
from clients.errors import StoreContention, StoreNotFound
from clients.pulsar.admin.errors import AdminConflict, AdminUnreachable
from clients.pulsar.admin.topics import Position
from clients.pulsar.managed_ledgers import without_termination
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from models.blue_green.claims import Stage, TopicClients
from models.blue_green.results import Undone
from models.lifecycle.failures import NAMED
from models.lifecycle.status import WaitKind

# Before flags are taken off, when sweeps that were under way are over, and twice more if these have ended topics.
_LOOKS = 4
_SWEEP_ENDS_WITHIN = 6.0
_LOAD_EVERY = 0.3
_LOADED_WITHIN = 30.0


@step(BatchTask)
def undo(task: BatchTask) -> Undone:
    """ROLLBACK: leave the batch's clients with blue; where that would lose messages, flip the whole batch."""
    if not holds_claim(task, task.store):
        # The batch of a run that is gone must end, since that of the next one has its id.
        return Undone(undone=True, notes=("this run has ended, or a later one has taken these namespaces over",))
    return _undo(task, task.guards, task.store)


def _undo(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> Undone:
    """Leave the clients of namespaces with blue, or flip what cannot stay."""
    # Taken first: whatever an earlier attempt still has on its way finds the record moved.
    # mutant: blue-green/undo-of-an-earlier-run
    mine = [guard for guard in guards if guard.take().flipped_in == task.attempt.run_id]
    others = [guard.namespace for guard in guards if guard not in mine]
    there = redirected_namespaces(task, store, others) | {name for name in others if read_flag(store, name)}
    for guard in guards:
        if guard not in mine and guard.namespace not in there:
            _take_flag_off(guard, store)
            _settle(task, guard)
    whys = dict.fromkeys(sorted(there), "its clients were sent to green before this run; what is begun continues")
    silent: set[str] = set()
    taken_back, restored = _take_flags_back(task, mine, store, silent)
    whys |= taken_back
    lost = [guard for guard in guards if guard.namespace in whys]
    # DRAIN continues with those that could not be ended.
    # mutant: blue-green/topics-that-cannot-be-undone-are-not-flipped
    unended = terminate_or_give_up(task, lost, store) if lost else ""
    stay = [guard for guard in guards if guard not in lost]
    kept = [f"the broker {broker} of {task.input.cluster} does not answer; restart it" for broker in sorted(silent)]
    kept += [unended] if unended else []
    kept += [why for guard in stay if (why := restore_redirect(task, guard, store))]
    kept += _used(task, store, [topic for topic in restored if topic.namespace_path not in whys])
    terminated = sum(len(_terminated(task, guard)) for guard in lost)
    why = next((f"{name}: {why}" for name, why in whys.items()), "")
    return Undone(undone=not whys, terminated=terminated, restored=len(restored), why=why, notes=tuple(kept))


@step(BlueGreenTask)
def undo_terminated_batch(task: BlueGreenTask, namespaces: list[str]) -> Undone:
    """The same for a batch whose workflow was ended by somebody else, before it could continue or back."""
    with task.blue_store() as store:
        if not holds_claim(task, store):
            return Undone(undone=True)
        return _undo(task, [NamespaceGuard(store, task.attempt, name) for name in namespaces], store)


def _take_flags_back(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, silent: set[str]
) -> tuple[dict[str, str], set[TopicName]]:
    """Take flags off, and look twice whether a topic was terminated meanwhile.

    A broker that is at its sweep when the flag is taken off goes on with it. Until that is over writes are held back: a
    producer that sends to a topic which is terminated without a flag is told that it has ended for good. The store is
    the truth: brokers that do not answer are added to `silent`, and writes do not wait for them.

    Returns:
        Namespaces that must be flipped all the same, with the reason; which topics take messages again.
    """
    whys: dict[str, str] = {}
    restored: set[TopicName] = set()
    waiting = list(guards)
    for look in range(_LOOKS):
        changed: list[NamespaceGuard] = []
        for guard in waiting:
            fresh = dict(_terminated(task, guard))
            ended = {**_noted_ends(store, guard), **fresh}
            if why := _obstacle(task, store, list(ended)):
                whys[guard.namespace] = why
            elif not fresh and look:
                _note_ends(store, guard, {})
                _settle(task, guard)
            else:
                _clear(task, guard, store, silent)
                # Clients that were told before that may have come to green meanwhile.
                if why := _obstacle(task, store, list(ended)):
                    whys[guard.namespace] = why
                    continue
                _note_ends(store, guard, ended)  # mutant: blue-green/ends-that-were-not-recorded
                for topic in fresh:
                    _unterminate(task, guard, store, topic)  # mutant: blue-green/termination-is-not-taken-back
                for topic, position in ended.items():
                    # mutant: blue-green/subscriptions-are-not-made-again
                    _restore_subscriptions(task, guard, store, topic, position)
                restored |= set(ended)
                changed.append(guard)
        waiting = changed
        if waiting:
            task.context.pause(_SWEEP_ENDS_WITHIN)
    if waiting:
        raise StoreContention(f"topics of {waiting[0].namespace} are terminated again and again without a flag")
    return whys, restored


def _noted_ends(store: CasStore, guard: NamespaceGuard) -> dict[TopicName, Position]:
    """Where topics had ended whose termination an attempt before this one began to take back."""
    known = saved_clients(store, guard.namespace)
    ends = ((topic, clients.ended) for topic, clients in known.items())
    return {TopicName.parse(topic): Position(ledger_id=end[0], entry_id=end[1]) for topic, end in ends if end}


def _note_ends(store: CasStore, guard: NamespaceGuard, ends: Mapping[TopicName, Position]) -> None:
    """Note them before the store forgets them; their subscriptions begin there again."""
    known = {TopicName.parse(topic): clients for topic, clients in saved_clients(store, guard.namespace).items()}
    noted = {topic: (at.ledger_id, at.entry_id) for topic, at in ends.items()}
    after = {
        topic: known.get(topic, TopicClients()).model_copy(update={"ended": noted.get(topic)})
        for topic in {**known, **noted}
    }
    if after != known:
        save_clients(store, guard, after)


def _used(task: AnyBlueGreenTask, store: CasReader, topics: Sequence[TopicName]) -> list[str]:
    """What people must know of topics that stay with blue, and that somebody uses on green all the same."""
    uses = task.each(topics, lambda topic: used_on_green(task, store, topic))
    return [
        f"{topic} stays on {task.input.cluster}, and has clients or messages on {task.input.green_cluster} as well"
        for topic, used in zip(topics, uses, strict=True)
        if used
    ][:NAMED]


def _terminated(task: AnyBlueGreenTask, guard: NamespaceGuard) -> list[tuple[TopicName, Position]]:
    """Topics that were ended, and where."""
    topics = topics_of(task.blue, guard.namespace)
    infos = task.each(topics, lambda topic: stored(task.blue, topic))
    ended = ((topic, info and info.terminated_position) for topic, info in zip(topics, infos, strict=True))
    return [(topic, position) for topic, position in ended if position]


def _obstacle(task: AnyBlueGreenTask, store: CasReader, terminated: Sequence[TopicName]) -> str:
    """Why the termination of topics cannot be taken back; empty where it can."""
    if not terminated:
        return ""
    if not task.input.unterminate:
        return (
            f"{len(terminated)} topics are terminated on {task.input.cluster}, {terminated[0]} among them, and "
            '"unterminate" is not set; what is begun continues to its end'
        )
    try:
        used = task.each(terminated, lambda topic: used_on_green(task, store, topic))
    except AdminUnreachable as error:
        # Writes must not wait for green, which may be away for good.
        return f"whether {task.input.green_cluster} has clients or messages of these topics is not known: {error}"
    if moved := [topic for topic, there in zip(terminated, used, strict=True) if there]:
        return (
            f"{len(moved)} topics have clients or messages on {task.input.green_cluster} already, {moved[0]} among "
            "them; their way back is a migration from green to blue"
        )
    return ""


def _clear(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, silent: set[str]) -> None:
    _take_flag_off(guard, store)
    # mutant: blue-green/rollback-that-waits-for-a-silent-broker
    wait_until_seen(task, guard.namespace, migrated=False, silent=silent)


def _take_flag_off(guard: NamespaceGuard, store: CasStore) -> None:
    # Written in any case: an attempt that froze between its look at the flag and its write must find it changed.
    with suppress(StoreNotFound):
        set_flag(store, guard.namespace, guard.require, migrated=False)


def _settle(task: AnyBlueGreenTask, guard: NamespaceGuard) -> None:
    """Let writes go to a namespace that stays, and put back what else was changed."""
    lift_publish_limit(task, guard)
    restore_policy(task, guard, INACTIVE)
    guard.note(stage=Stage.RETURNED, copied_in="")


def _unterminate(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName) -> None:
    """Take the termination of a topic out of the metadata store while no broker has it loaded.

    A broker that loads the topic in between has the old state in memory; it is unloaded again then.
    """
    path = topic.managed_ledger_path

    def change() -> None:
        task.change_blue(
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
        # The broker that had it in memory may have written it back.
        look = check_topic(task.blue, topic)
        info = stored(task.blue, topic)
        stays = info is not None and info.terminated_position is None
        if look.stats is not None and stays and task.blue.topics.internal_stats(topic).state == "LedgerOpened":
            task.context.clear_waiting()
            return
        task.context.pause(_LOAD_EVERY)
    raise StoreContention(f"{topic} is still terminated on {task.input.cluster}")


def _restore_subscriptions(
    task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasStore, topic: TopicName, ended: Position
) -> None:
    """Create those subscriptions again that brokers deleted because nothing was left for them to read."""
    before = saved_clients(store, guard.namespace).get(str(topic), TopicClients())
    for name in sorted(set(before.consumers) - set(task.blue.subscriptions.names(topic))):
        guard.require()
        with suppress(AdminConflict):
            task.blue.subscriptions.create(
                topic,
                name,
                # A subscription that is created at a message gets that message first.
                Position(ledger_id=ended.ledger_id, entry_id=ended.entry_id + 1),
                replicated=name in before.replicated,
                properties=before.properties.get(name),
            )
