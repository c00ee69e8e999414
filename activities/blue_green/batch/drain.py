"""DRAIN: watch the topics of a batch until blue's subscriptions are drained and clients are on green."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard, guards_that_move
from activities.blue_green.copy.copied_cursors import count_dropped
from activities.blue_green.copy.subscription_copy import read_managed_ledger
from activities.blue_green.saved_clients import clients_of, saved_clients
from activities.blue_green.termination import (
    NotTerminated,
    is_overdue,
    reload_topics,
    terminate_again,
    terminate_or_give_up,
)
from activities.blue_green.topics import (
    TopicState,
    check_topic,
    is_terminated,
    named,
    needed_by,
    report_blue_backlog,
    topics_of,
)
from activities.blue_green.write_limit import lift_limit_if_terminated, lift_publish_limit
from activities.lifecycle.step import step
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasStore
from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminServerError
from clients.pulsar.admin.topics import REPLICATOR, InternalStats, Position, SubscriptionStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from clients.pulsar.wire.position import EntryPosition
from models.blue_green.claims import Stage, TopicClients, is_held_back
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Drained
from models.lifecycle.failures import NAMED, FailedItem, summarize
from models.lifecycle.status import ProgressTask, ProgressUnit, ReadingName, Side, WaitKind
from spark.blue_green.copy_record import CopyRecord
from spark.blue_green.positions import count_after, positions_after
from spark.blue_green.tasks import read_record

# A round takes two requests for each undrained topic. Seconds between the starts of two rounds.
_ROUND = 1.0
_LONGEST_ROUND = 10.0

CLIENTS_WITHIN = 60.0
"""Seconds after which a client that did not connect to green counts as missing: twice the timeout of clients.

They count from the time when blue is drained, since consumers move when they have read everything there.
"""

# A consumer whose connection was closed reconnects sooner.
_IDLE_FOR = 10.0

_HELD_BACK = "writes to it stay held back, since its producers would stop permanently if it was terminated later"
_ADVICE = "Restart its broker, and start the migration again"


@step(BatchTask)
def drain(task: BatchTask) -> Drained:
    """Watch a batch until its topics on blue are drained, or `drain_timeout` is over."""
    guards, store = task.guards, task.store
    moving = guards_that_move(guards)
    # An earlier attempt may have been lost after it took a flag off to load topics again.
    unended = ""
    halfway = [guard for guard in moving if not read_flag(store, guard.namespace) or is_held_back(guard.require())]
    # A namespace that a client deleted has no flag, and nothing to drain.
    # mutant: blue-green/flag-of-a-deleted-namespace
    if halfway := [guard for guard in halfway if _exists(task, guard)]:
        unended = terminate_or_give_up(task, halfway, store)  # mutant: blue-green/flag-that-a-lost-attempt-took-off
    drained = DrainWatch(task, moving, store, unended=unended).run()
    stayed = tuple(
        FailedItem(path=f"persistent://{guard.namespace}/", reason="it was rolled back, and stays on blue")
        for guard in guards
        if guard not in moving
    )
    return drained.model_copy(
        update={"remaining": (*stayed, *drained.remaining), "remaining_count": drained.remaining_count + len(stayed)}
    )


def _exists(task: AnyBlueGreenTask, guard: NamespaceGuard) -> bool:
    try:
        task.blue.admin.namespaces.policies(guard.namespace)
    except AdminNotFound:
        return False
    return True


class UndrainedTopic(NamedTuple):
    """A topic on blue that is not drained, with the reason."""

    state: TopicState
    why: str

    @property
    def is_read(self) -> bool:
        """True if consumers read all that is left, so that it is drained without help."""
        stats = self.state.stats
        unread = [sub for sub in stats.client_subscriptions.values() if sub.msg_backlog] if stats else []
        return bool(unread) and all(sub.consumers for sub in unread)


class DrainWatch:
    """Watch of one batch.

    Args:
        task: the step.
        guards: guards of the namespaces.
        store: blue's metadata store, open.
        unended: why topics were not terminated within `drain_timeout`, then the watch checks once; empty if they were.
    """

    def __init__(
        self, task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore, *, unended: str = ""
    ) -> None:
        self._task = task
        self._guards = guards
        self._store = store
        self._unended = unended
        self._before = {
            topic: clients for guard in guards for topic, clients in saved_clients(store, guard.namespace).items()
        }
        self._begun = self._undrained_at = time.monotonic()
        self._done: set[TopicName] = set()
        self._terminated: set[TopicName] = set()
        self._arrived: set[str] = set()
        self._absent: dict[str, int] = {}
        self._publishers: dict[str, int] = {}
        self._backlogs: dict[tuple[str, str], int | None] = {}
        self._lost: dict[str, str] = {}
        self._idle_since: dict[tuple[TopicName, str], float] = {}
        self._ended_since: dict[tuple[TopicName, str], float] = {}
        self._repaired = self._skipped = 0
        self._reopened: dict[TopicName, str] = {}

    def run(self) -> Drained:
        """Watch until the topics are drained, or `drain_timeout` is over; return the result."""
        end = self._begun + self._task.input.drain_timeout.total_seconds()
        while True:
            round_begun = time.monotonic()
            by_guard = {guard: self.check(guard) for guard in self._guards}
            undrained = [topic for topics in by_guard.values() for topic in topics]
            missing = self._missing()
            if undrained:
                self._undrained_at = time.monotonic()
            waits_for_clients = bool(missing) and time.monotonic() < self._undrained_at + CLIENTS_WITHIN
            self._report(undrained, missing)
            if not undrained and not waits_for_clients:
                break
            if self._unended or time.monotonic() > end:
                break
            age = time.monotonic() - self._begun
            self._task.context.pause(
                max(min(max(_ROUND, age / 60), _LONGEST_ROUND) - time.monotonic() + round_begun, 0)
            )
        if self._unended:
            for guard in self._guards:
                lift_limit_if_terminated(self._task, guard)
        # mutant: blue-green/messages-that-green-gives-up-pass
        abandoned = {**self._abandoned(), **self._lost_on_green()}
        for guard, topics in by_guard.items():
            if not topics and guard.namespace not in abandoned:
                guard.note(stage=Stage.MOVED)
        items = [FailedItem(path=str(topic.state.topic), reason=topic.why) for topic in undrained]
        return Drained(
            seconds=round(time.monotonic() - self._begun, 3),
            remaining=named(items),
            remaining_count=len(items),
            missing=tuple(missing[:NAMED]),
            missing_count=sum(self._absent.values()),
            clients=sum(clients.total for clients in self._before.values()),
            abandoned=tuple(abandoned.values()),
            repaired=self._repaired,
            skipped=self._skipped,
            reopened=tuple(self._reopened.values())[:NAMED],
        )

    # Blue ------------------------------------------------------------------------------------------------------------

    def check(self, guard: NamespaceGuard) -> list[UndrainedTopic]:
        """Return the undrained topics of a namespace, after unloaded ones were loaded again."""
        names = topics_of(self._task.blue.admin, guard.namespace)
        waiting = [topic for topic in names if topic not in self._done]
        states = self._task.each(waiting, lambda topic: check_topic(self._task.blue.admin, topic))
        blocked = [state.topic for state in states if state.blocked and self._is_undrainable(state.topic)]
        if blocked and not self._unended:
            self._repair(guard, blocked)  # mutant: blue-green/no-topic-is-loaded-again
            states = self._task.each(waiting, lambda topic: check_topic(self._task.blue.admin, topic))
        undrained = [UndrainedTopic(state, why) for state in states if (why := self._why_undrained(guard, state))]
        # Other topics are checked here for the last time.
        waiting_for_more = {topic.state.topic for topic in undrained if topic.state.topic in self._terminated}
        ended = [state.topic for state in states if state.stats and state.topic not in waiting_for_more]
        reopened = terminate_again(self._task, guard, self._store, ended)
        self._reopened |= reopened
        undrained += [UndrainedTopic(state, reopened[state.topic]) for state in states if state.topic in reopened]
        busy = {topic.state.topic for topic in undrained}
        others = [state for state in states if state.stats and state.topic not in busy]
        reasons = self._task.each(others, lambda state: not_replicated(self._task.blue.admin, state.topic))
        undrained += [UndrainedTopic(state, why) for state, why in zip(others, reasons, strict=True) if why]
        self._done |= {state.topic for state in states} - {topic.state.topic for topic in undrained}
        return undrained

    def _why_undrained(self, guard: NamespaceGuard, state: TopicState) -> str:
        if state.gone:
            return ""
        if state.topic not in self._terminated:
            if not is_terminated(self._task.blue.admin, state.topic):
                return self._why_not_terminated(guard)
            self._terminated.add(state.topic)
        if state.stats is None:
            return ""
        reasons: list[str] = []
        if state.stats.publishers:
            reasons.append(f"{len(state.stats.publishers)} producers are connected")
        for remote, replication in state.stats.replication.items():
            if replication.replication_backlog:
                reasons.append(f"{replication.replication_backlog:,} messages are not replicated to {remote} yet")
        waits = (
            self._why_waits(guard, state.topic, name, sub) for name, sub in state.stats.client_subscriptions.items()
        )
        return "; ".join([*reasons, *filter(None, waits)])

    def _why_not_terminated(self, guard: NamespaceGuard) -> str:
        if not self._unended:
            return "it is not terminated"
        consequence = _HELD_BACK if read_flag(self._store, guard.namespace) else "its clients stay on blue"
        return f"it is not terminated, and {consequence}. {_ADVICE}: {self._unended}"

    def _why_waits(self, guard: NamespaceGuard, topic: TopicName, name: str, sub: SubscriptionStats) -> str:
        """Return why a subscription is not drained; empty if it is, or if its backlog was skipped."""
        if sub.msg_backlog and (why := self._skip_copied(guard, topic, name)) is not None:
            return why
        if sub.consumers:
            self._idle_since.pop((topic, name), None)
            if sub.msg_backlog:
                self._ended_since.pop((topic, name), None)
                return f"subscription {name} has {sub.msg_backlog:,} messages left"
            since = self._ended_since.setdefault((topic, name), time.monotonic())
            return why_attached(name, time.monotonic() - since)
        if sub.msg_backlog and not self._is_skipped(guard, topic, name, sub.msg_backlog):
            consumers = self._clients(topic).consumers.get(name, 0)
            return why_unread(name, sub.msg_backlog, consumers, self._task.input.cluster)
        return ""

    def _is_skipped(self, guard: NamespaceGuard, topic: TopicName, name: str, backlog: int) -> bool:
        """Skip the backlog of an idle subscription, if the input says so; return whether it was skipped."""
        since = self._idle_since.setdefault((topic, name), time.monotonic())
        if self._task.input.idle_subscriptions is not IdleSubscriptions.SKIP:
            return False
        clients = self._clients(topic)
        # A subscription that had consumers at LOAD or at the flag, or is newer, belongs to a running application.
        # mutant: blue-green/skip-of-what-is-in-use
        if clients.consumers.get(name) != 0 or name in clients.late or time.monotonic() - since < _IDLE_FOR:
            return False
        try:
            self._skip_all(guard, topic, name)
        except AdminNotFound:
            return True
        self._skipped += backlog
        return True

    def _skip_copied(self, guard: NamespaceGuard, topic: TopicName, name: str) -> str | None:
        """Skip on blue the entries of a subscription that were copied to green; later entries stay.

        Returns:
            Why entries stay, empty if none do; None if the subscription was not copied.
        """
        copied = read_record(self._store, topic)
        # The copy of an earlier run may have been deleted from green.
        # mutant: blue-green/copy-of-any-run-is-relied-upon
        if (
            copied is None
            or name not in copied.record.copied_subscriptions
            or copied.record.copied_in != guard.require().copied_in
        ):
            return None
        stats, ledgers = read_managed_ledger(self._task.blue.admin, topic)
        # mutant: blue-green/backlog-that-green-gave-up-is-skipped
        if dropped := self._dropped_on_green(topic, name, copied.record, stats):
            blue, green = self._task.input.cluster, self._task.input.green_cluster
            why = f"subscription {name} has {dropped:,} entries left that {green} dropped from its copy"
            return f"{why}; a consumer with the address of {blue} gets them, or skip them there"
        last = copied.record.positions.last
        at = last[0] if last else EntryPosition(*copied.record.start)
        late = count_after(ledgers, at)
        if not guard.require().skipped:
            # Before the first of them, so that no rollback lets clients stay on blue without these messages.
            guard.note(skipped=True)
        with suppress(AdminNotFound):
            if not late:
                self._skip_all(guard, topic, name)
            elif name in stats.cursors and EntryPosition.parse(stats.cursors[name].mark_delete_position) < at:
                first = next(positions_after(ledgers, at))
                position = Position(ledger_id=first.ledger_id, entry_id=first.entry_id)
                self._task.blue.change_or_never(
                    connect=lambda admin: admin.topics.internal_info(topic),
                    fence=guard.require,
                    change=lambda admin: admin.subscriptions.reset_to(topic, name, position),
                )
        return f"subscription {name} has {late:,} entries left that came after its copy" if late else ""

    def _dropped_on_green(self, topic: TopicName, name: str, record: CopyRecord, blue: InternalStats) -> int:
        """Return how many entries of a copied subscription green gave up without a consumer, and blue still has."""
        before, green = blue.cursors.get(name), self._task.green.admin
        try:
            dropped = count_dropped(record, before, green.topics.internal_stats(topic).cursors.get(name))
            sub = green.topics.stats(topic).subscriptions.get(name) if dropped else None
        except AdminNotFound:
            return count_dropped(record, before, None)
        # Consumers that came to green acknowledge there.
        return 0 if sub and (sub.consumers or sub.last_consumed_flow_timestamp) else dropped

    def _skip_all(self, guard: NamespaceGuard, topic: TopicName, name: str) -> None:
        self._task.blue.change_or_never(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.subscriptions.skip_all(topic, name),
        )

    def _is_undrainable(self, topic: TopicName) -> bool:
        """Return whether an unloaded topic is not terminated, or has messages that its consumers could not read."""
        info = stored(self._task.blue.admin, topic)
        # mutant: blue-green/undrainable-replication-is-left
        return info is not None and (info.terminated_position is None or bool(needed_by(info)))

    def _repair(self, guard: NamespaceGuard, topics: Sequence[TopicName]) -> None:
        """Load unloaded topics again, with writes held back until all of them are terminated.

        Raises:
            StoreContention: they are not terminated in time; writes are still held back, and the next attempt
                continues. After `drain_timeout` they count as undrained instead.
        """
        try:
            self._load_again(guard, topics)
        except StoreContention as error:
            if not is_overdue(self._task):
                raise
            self._unended = str(error)

    def _load_again(self, guard: NamespaceGuard, topics: Sequence[TopicName]) -> None:
        reload_topics(self._task, guard, self._store, topics)
        self._repaired += len(topics)
        deadline = self._task.context.deadline(self._task.input.flip_timeout.total_seconds())
        while waiting := [topic for topic in topics if not is_terminated(self._task.blue.admin, topic)]:
            if deadline.passed:
                raise NotTerminated(f"{len(waiting)} reloaded topics are not terminated: {summarize(waiting)}")
            self._task.context.pause(_ROUND)
        lift_publish_limit(self._task, guard)

    # Green -----------------------------------------------------------------------------------------------------------

    def _missing(self) -> list[str]:
        """Return clients of blue that are not seen on green yet."""
        waiting = {topic: clients for topic, clients in self._before.items() if topic not in self._arrived}
        missing: list[str] = []
        self._absent.clear()
        for topic, there in zip(waiting, self._task.each(waiting, self._on_green), strict=True):
            if absent := list(_absent(waiting[topic], there)):
                missing += [f"{topic}: {client}" for client, _ in absent]
                self._absent[topic] = sum(count for _, count in absent)
            else:
                self._arrived.add(topic)
        return missing

    def _abandoned(self) -> dict[str, FailedItem]:
        """Return the namespaces with too many clients missing on green: these may be unable to use green."""
        noted, absent = Counter[str](), Counter[str]()
        for topic, clients in self._before.items():
            namespace = TopicName.parse(topic).namespace_path
            noted[namespace] += clients.total
            absent[namespace] += self._absent.get(topic, 0)
        input = self._task.input
        why = f"clients did not connect to {input.green_cluster} within {CLIENTS_WITHIN:.0f} s"
        return {
            namespace: FailedItem(path=f"persistent://{namespace}/", reason=f"{count} of {noted[namespace]} {why}")
            for namespace, count in absent.items()
            if are_too_many(count, noted[namespace], input.max_missing_clients)
        }

    def _lost_on_green(self) -> dict[str, FailedItem]:
        """Return the namespaces whose messages green dropped before their consumers connected."""
        return {
            TopicName.parse(topic).namespace_path: FailedItem(path=topic, reason=why)
            for topic, why in sorted(self._lost.items())
        }

    def _on_green(self, topic: str) -> TopicClients:
        state = check_topic(self._task.green.admin, TopicName.parse(topic))
        clients = clients_of(state.stats) if state.stats else TopicClients()
        self._publishers[topic] = len(clients.producers)
        if not state.blocked:
            self._watch_backlogs(topic, state.stats.client_subscriptions if state.stats else {})
        return clients

    def _watch_backlogs(self, topic: str, there: Mapping[str, SubscriptionStats]) -> None:
        """Note subscriptions whose backlog shrinks on green while their consumers read on blue: messages are lost."""
        green = self._task.input.green_cluster
        for name, count in self._before[topic].consumers.items():
            sub, before = there.get(name), self._backlogs.get((topic, name), 0)
            if not count or before is None:
                continue
            if sub is None:
                self._lost[topic] = f"{green} deleted the subscription {name} before its consumers connected"
            elif sub.consumers or sub.last_consumed_flow_timestamp:
                # From now on its consumers read it.
                self._backlogs[topic, name] = None
            elif sub.msg_backlog < before and not sub.is_replicated:  # Consumers of another cluster move such cursors.
                self._lost[topic] = (
                    f"{green} dropped messages of the subscription {name} before its consumers connected"
                )
            else:
                self._backlogs[topic, name] = sub.msg_backlog

    def _clients(self, topic: TopicName) -> TopicClients:
        return self._before.get(str(topic), TopicClients())

    # Status ----------------------------------------------------------------------------------------------------------

    def _report(self, undrained: Sequence[UndrainedTopic], missing: Sequence[str]) -> None:
        context, total = self._task.context, len(self._before)
        backlog = report_blue_backlog(context, (topic.state.stats for topic in undrained if topic.state.stats))
        context.read(ReadingName.PUBLISHERS, Side.GREEN, sum(self._publishers.values()))
        detail = f"{backlog:,} messages left on {self._task.input.cluster}" if backlog else ""
        context.progress(ProgressTask.DRAIN, ProgressUnit.TOPICS, total - len(undrained), total, detail=detail)
        lost = [f"{topic}: {why}" for topic, why in sorted(self._lost.items())]
        fault = f"; failed: {summarize(lost)}" if lost else ""
        if undrained:
            # Topics without a reading consumer need help, and may be few among many others.
            first = min(undrained, key=lambda topic: topic.is_read)
            more = f" and {len(undrained) - 1} more topics" if len(undrained) > 1 else ""
            context.waiting_for(WaitKind.CLIENTS, f"{first.state.topic}: {first.why}{more}{fault}")
        elif missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            context.waiting_for(
                WaitKind.CLIENTS, f"clients to connect to {self._task.input.green_cluster}: {missing[0]}{more}{fault}"
            )
        else:
            context.clear_waiting()


def not_replicated(blue: PulsarAdminReader, topic: TopicName) -> str:
    """Return the clusters to which messages of a topic are not replicated yet, in words; empty for none.

    The cursors decide: statistics lack a replicator until its broker has started it after a load.

    Args:
        blue: the cluster of the topic.
        topic: the terminated topic.
    """
    try:
        stats, ledgers = read_managed_ledger(blue, topic)
    except (AdminNotFound, AdminServerError):
        # It was deleted, or cannot be loaded; the next check reports that.
        return ""
    waiting = {
        name.removeprefix(REPLICATOR): count_after(ledgers, EntryPosition.parse(cursor.mark_delete_position))
        for name, cursor in stats.cursors.items()
        if name.startswith(REPLICATOR)
    }
    reasons = (f"{count:,} messages are not replicated to {remote} yet" for remote, count in waiting.items() if count)
    return "; ".join(reasons)


def why_unread(subscription: str, backlog: int, consumers: int, cluster: str) -> str:
    """Return the reason that a subscription without consumers is not drained, and what to do.

    Args:
        subscription: the subscription; it has no consumer now.
        backlog: number of its messages.
        consumers: number of consumers that it had before the flip.
        cluster: blue's name.
    """
    why = f"subscription {subscription} has {backlog:,} messages left, and no consumer"
    # If a topic is unloaded during the flip, its C++ and Python consumers may move to green early, or stop.
    return f"{why}; it had {consumers}: restart them, with the address of {cluster}" if consumers else why


def why_attached(subscription: str, seconds: float) -> str:
    """Return the reason that consumers of a drained subscription are still on blue, after some seconds."""
    why = f"subscription {subscription} has 0 messages left, and its consumers are not redirected"
    # Two threads of a broker can deadlock here.
    return why if seconds < CLIENTS_WITHIN else f"{why} for {seconds:.0f} s. Its broker may hang: restart that broker"


def are_too_many(missing: int, clients: int, limit: float) -> bool:
    """Return whether too many clients of a namespace are missing on green.

    Args:
        missing: number of missing clients.
        clients: number of all clients before the flip.
        limit: largest share that may be missing, if not all are.
    """
    return missing > 0 and (missing == clients or missing / clients > limit)


def _absent(before: TopicClients, there: TopicClients) -> Iterable[tuple[str, int]]:
    """Yield the missing clients of a topic: a description, and their number."""
    for producer in sorted(set(before.producers) - set(there.producers)):
        yield f"producer {producer}", 1
    consumers: Mapping[str, int] = there.consumers
    for name, count in sorted(before.consumers.items()):
        if (fewer := count - consumers.get(name, 0)) > 0:
            yield f"{fewer} of {count} consumers of {name}", fewer
