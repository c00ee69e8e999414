"""DRAIN: every topic of a batch under watch, until its clients are on green and nobody waits for anything on blue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard, guards_that_move
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
from clients.pulsar.admin.topics import REPLICATOR, Position, SubscriptionStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from clients.pulsar.wire.position import EntryPosition
from models.blue_green.claims import Stage, TopicClients, is_held_back
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Drained
from models.lifecycle.failures import NAMED, FailedItem, some
from models.lifecycle.names import PUBLISHERS_GAUGE
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from spark.blue_green.positions import count_after, places_after
from spark.blue_green.tasks import read_record

# Two calls for each topic that is left, so that a namespace of any size asks for less than three a second of each.
_ROUND = 1.0
_LONGEST_ROUND = 10.0

CLIENTS_WITHIN = 60.0
"""Seconds after which a client that did not come to green counts as gone: twice what clients wait for an answer.

They count from the moment that nothing is left on blue, since consumers come when they have read all there.
"""

# A consumer whose connection was closed comes back sooner.
_IDLE_FOR = 10.0

_HELD_BACK = "writes to it stay held back, since its producers would stop for good if it was ended later"
_CURE = "Restart its broker, and start the migration again"


@step(BatchTask)
def drain(task: BatchTask) -> Drained:
    """Watch a batch until nothing is left on blue, or the time is up."""
    guards, store = task.guards, task.store
    moving = guards_that_move(guards)
    # An attempt before this one may have been lost while it had taken a flag off, to load topics again.
    unended = ""
    if halfway := [guard for guard in moving if not read_flag(store, guard.namespace) or is_held_back(guard.require())]:
        unended = terminate_or_give_up(task, halfway, store)  # mutant: blue-green/flag-that-a-lost-attempt-took-off
    found = DrainWatch(task, moving, store, unended=unended).run()
    stayed = tuple(
        FailedItem(path=f"persistent://{guard.namespace}/", reason="it was rolled back, and stays on blue")
        for guard in guards
        if guard not in moving
    )
    return found.model_copy(
        update={"remaining": (*stayed, *found.remaining), "remaining_count": found.remaining_count + len(stayed)}
    )


class Left(NamedTuple):
    """What a topic still has on blue; empty where nothing is waited for."""

    look: TopicState
    why: str


class DrainWatch:
    """The watch of one batch.

    Args:
        task: the step.
        guards: the namespaces.
        store: blue's metadata store, open.
        unended: why topics were not ended within `drain_timeout`; then the watch looks once. Empty where they were.
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
        self._begun = self._left_at = time.monotonic()
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
        """Watch until nothing is left, or the time is up."""
        end = self._begun + self._task.input.drain_timeout.total_seconds()
        while True:
            round_begun = time.monotonic()
            found = {guard: self.look(guard) for guard in self._guards}
            left = [one for those in found.values() for one in those]
            missing = self._missing()
            if left:
                self._left_at = time.monotonic()
            waits_for_clients = bool(missing) and time.monotonic() < self._left_at + CLIENTS_WITHIN
            self._tell(left, missing)
            if not left and not waits_for_clients:
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
        for guard, those in found.items():
            if not those and guard.namespace not in abandoned:
                guard.note(stage=Stage.MOVED)
        items = [FailedItem(path=str(one.look.topic), reason=one.why) for one in left]
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

    def look(self, guard: NamespaceGuard) -> list[Left]:
        """What a namespace still has on blue; what cannot be drained as it is gets loaded again."""
        names = topics_of(self._task.blue, guard.namespace)
        waiting = [topic for topic in names if topic not in self._done]
        looks = self._task.each(waiting, lambda topic: check_topic(self._task.blue, topic))
        blocked = [look.topic for look in looks if look.blocked and self._is_undrainable(look.topic)]
        if blocked and not self._unended:
            self._repair(guard, blocked)  # mutant: blue-green/no-topic-is-loaded-again
            looks = self._task.each(waiting, lambda topic: check_topic(self._task.blue, topic))
        left = [Left(look, why) for look in looks if (why := self._why_left(guard, look))]
        # Of the others only those that may never be looked at again.
        waiting_for_more = {one.look.topic for one in left if one.look.topic in self._terminated}
        ended = [look.topic for look in looks if look.stats and look.topic not in waiting_for_more]
        opened = terminate_again(self._task, guard, self._store, ended)
        self._reopened |= opened
        left += [Left(look, opened[look.topic]) for look in looks if look.topic in opened]
        busy = {one.look.topic for one in left}
        others = [look for look in looks if look.stats and look.topic not in busy]
        reasons = self._task.each(others, lambda look: not_replicated(self._task.blue, look.topic))
        left += [Left(look, why) for look, why in zip(others, reasons, strict=True) if why]
        self._done |= {look.topic for look in looks} - {one.look.topic for one in left}
        return left

    def _why_left(self, guard: NamespaceGuard, look: TopicState) -> str:
        if look.gone:
            return ""
        if look.topic not in self._terminated:
            if not is_terminated(self._task.blue, look.topic):
                return self._why_not_ended(guard)
            self._terminated.add(look.topic)
        if look.stats is None:
            return ""
        reasons: list[str] = []
        if look.stats.publishers:
            reasons.append(f"{len(look.stats.publishers)} producers are connected")
        for remote, replication in look.stats.replication.items():
            if replication.replication_backlog:
                reasons.append(f"{replication.replication_backlog:,} messages are not replicated to {remote} yet")
        waits = (self._why_waits(guard, look.topic, *one) for one in look.stats.client_subscriptions.items())
        return "; ".join([*reasons, *filter(None, waits)])

    def _why_not_ended(self, guard: NamespaceGuard) -> str:
        if not self._unended:
            return "it is not terminated"
        held = _HELD_BACK if read_flag(self._store, guard.namespace) else "its clients stay where they are"
        return f"it is not terminated, and {held}. {_CURE}: {self._unended}"

    def _why_waits(self, guard: NamespaceGuard, topic: TopicName, name: str, sub: SubscriptionStats) -> str:
        """What a subscription still has on blue; empty where that is nothing, or was given up."""
        if sub.msg_backlog and (late := self._left_of_copied(guard, topic, name)) is not None:
            return f"subscription {name} has {late:,} entries left that came behind its copy" if late else ""
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
        """Whether the backlog of an idle subscription was given up, as the input says."""
        since = self._idle_since.setdefault((topic, name), time.monotonic())
        if self._task.input.idle_subscriptions is not IdleSubscriptions.SKIP:
            return False
        # One that had consumers at LOAD or at the flag, or has come since, belongs to an application that is in use.
        # mutant: blue-green/skip-of-what-is-in-use
        if self._clients(topic).consumers.get(name) != 0 or time.monotonic() - since < _IDLE_FOR:
            return False
        try:
            self._skip_all(guard, topic, name)
        except AdminNotFound:
            return True
        self._skipped += backlog
        return True

    def _left_of_copied(self, guard: NamespaceGuard, topic: TopicName, name: str) -> int | None:
        """Give up on blue what of a subscription continues with its copy on green; what came behind that stays.

        Returns:
            How many entries stay; None if the subscription was not copied.
        """
        known = read_record(self._store, topic)
        # A copy of an earlier run may be gone from green.
        # mutant: blue-green/copy-of-any-run-is-relied-upon
        if (
            known is None
            or name not in known.record.copied_subscriptions
            or known.record.copied_in != guard.require().copied_in
        ):
            return None
        stats, ledgers = read_managed_ledger(self._task.blue, topic)
        last = known.record.positions.last
        at = last[0] if last else EntryPosition(*known.record.start)
        late = count_after(ledgers, at)
        with suppress(AdminNotFound):
            if not late:
                self._skip_all(guard, topic, name)
            elif name in stats.cursors and EntryPosition.parse(stats.cursors[name].mark_delete_position) < at:
                first = next(places_after(ledgers, at))
                position = Position(ledger_id=first.ledger_id, entry_id=first.entry_id)
                self._task.change_blue(
                    connect=lambda admin: admin.topics.internal_info(topic),
                    fence=guard.require,
                    change=lambda admin: admin.subscriptions.reset_to(topic, name, position),
                )
        return late

    def _skip_all(self, guard: NamespaceGuard, topic: TopicName, name: str) -> None:
        self._task.change_blue(
            connect=lambda admin: admin.topics.internal_info(topic),
            fence=guard.require,
            change=lambda admin: admin.subscriptions.skip_all(topic, name),
        )

    def _is_undrainable(self, topic: TopicName) -> bool:
        """Return whether a topic that is not loaded is still needed, which nobody could drain, or is not ended."""
        info = stored(self._task.blue, topic)
        # mutant: blue-green/undrainable-replication-is-left
        return info is not None and (not info.migrated or bool(needed_by(info)))

    def _repair(self, guard: NamespaceGuard, topics: Sequence[TopicName]) -> None:
        """Load stranded topics again, with writes held back until all of them are terminated.

        Raises:
            StoreContention: they are not in time; writes are held back still, and the next attempt continues. From
                `drain_timeout` on they count as left.
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
        while waiting := [topic for topic in topics if not is_terminated(self._task.blue, topic)]:
            if deadline.passed:
                raise NotTerminated(f"{len(waiting)} topics that were loaded again are not terminated: {some(waiting)}")
            self._task.context.pause(_ROUND)
        lift_publish_limit(self._task, guard)

    # Green -----------------------------------------------------------------------------------------------------------

    def _missing(self) -> list[str]:
        """Clients that blue had, and that are not seen on green yet."""
        waiting = {topic: clients for topic, clients in self._before.items() if topic not in self._arrived}
        found: list[str] = []
        self._absent.clear()
        for topic, there in zip(waiting, self._task.each(waiting, self._on_green), strict=True):
            if absent := list(_absent(waiting[topic], there)):
                found += [f"{topic}: {one}" for one, _ in absent]
                self._absent[topic] = sum(count for _, count in absent)
            else:
                self._arrived.add(topic)
        return found

    def _abandoned(self) -> dict[str, FailedItem]:
        """Namespaces of whose clients too many did not come to green: these may not be able to use it."""
        noted, absent = Counter[str](), Counter[str]()
        for topic, clients in self._before.items():
            namespace = TopicName.parse(topic).namespace_path
            noted[namespace] += clients.total
            absent[namespace] += self._absent.get(topic, 0)
        input = self._task.input
        why = f"clients did not come to {input.green_cluster} within {CLIENTS_WITHIN:.0f} s"
        return {
            namespace: FailedItem(path=f"persistent://{namespace}/", reason=f"{count} of {noted[namespace]} {why}")
            for namespace, count in absent.items()
            if are_too_many(count, noted[namespace], input.max_missing_clients)
        }

    def _lost_on_green(self) -> dict[str, FailedItem]:
        """Namespaces of which green has given up messages before their consumers came."""
        return {
            TopicName.parse(topic).namespace_path: FailedItem(path=topic, reason=why)
            for topic, why in sorted(self._lost.items())
        }

    def _on_green(self, topic: str) -> TopicClients:
        look = check_topic(self._task.green, TopicName.parse(topic))
        there = clients_of(look.stats) if look.stats else TopicClients()
        self._publishers[topic] = len(there.producers)
        if not look.blocked:
            self._watch_backlogs(topic, look.stats.client_subscriptions if look.stats else {})
        return there

    def _watch_backlogs(self, topic: str, there: Mapping[str, SubscriptionStats]) -> None:
        """Note what green gives up of subscriptions whose consumers still read on blue: they lack these messages."""
        green = self._task.input.green_cluster
        for name, count in self._before[topic].consumers.items():
            sub, before = there.get(name), self._backlogs.get((topic, name), 0)
            if not count or before is None:
                continue
            if sub is None:
                self._lost[topic] = f"{green} deleted the subscription {name} before its consumers came"
            elif sub.consumers or sub.last_consumed_flow_timestamp:
                # From now on they read it.
                self._backlogs[topic, name] = None
            elif sub.msg_backlog < before and not sub.is_replicated:  # Consumers of another cluster move those.
                self._lost[topic] = f"{green} gave up messages of the subscription {name} before its consumers came"
            else:
                self._backlogs[topic, name] = sub.msg_backlog

    def _clients(self, topic: TopicName) -> TopicClients:
        return self._before.get(str(topic), TopicClients())

    # What is told ----------------------------------------------------------------------------------------------------

    def _tell(self, left: Sequence[Left], missing: Sequence[str]) -> None:
        context, total = self._task.context, len(self._before)
        backlog = report_blue_backlog(context, (one.look.stats for one in left if one.look.stats))
        context.set_gauge(PUBLISHERS_GAUGE, "green", sum(self._publishers.values()))
        detail = f"{backlog:,} messages left on {self._task.input.cluster}" if backlog else ""
        done = max(total - len(left), 0)
        context.progress(ProgressTask.DRAIN, ProgressUnit.TOPICS, done, total, detail=detail)
        if left:
            more = f" and {len(left) - 1} more topics" if len(left) > 1 else ""
            context.waiting_for(WaitKind.CLIENTS, f"{left[0].look.topic}: {left[0].why}{more}")
        elif missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            context.waiting_for(
                WaitKind.CLIENTS, f"clients to come to {self._task.input.green_cluster}: {missing[0]}{more}"
            )
        else:
            context.clear_waiting()


def not_replicated(blue: PulsarAdminReader, topic: TopicName) -> str:
    """Return what a topic has that other clusters have not acknowledged, in words; empty for nothing.

    By its cursors: statistics name a replicator only once its broker has started it after a load.

    Args:
        blue: the cluster of the topic.
        topic: that was ended.
    """
    try:
        stats, ledgers = read_managed_ledger(blue, topic)
    except (AdminNotFound, AdminServerError):
        # It is gone, or cannot be loaded, which the next look tells.
        return ""
    waiting = {
        name.removeprefix(REPLICATOR): count_after(ledgers, EntryPosition.parse(cursor.mark_delete_position))
        for name, cursor in stats.cursors.items()
        if name.startswith(REPLICATOR)
    }
    reasons = (f"{count:,} messages are not replicated to {remote} yet" for remote, count in waiting.items() if count)
    return "; ".join(reasons)


def why_unread(subscription: str, backlog: int, consumers: int, cluster: str) -> str:
    """Return why nobody reads the rest of a subscription on blue, with the cure.

    Args:
        subscription: that has no consumer now.
        backlog: messages that it has left.
        consumers: how many it had before the flip.
        cluster: blue's name.
    """
    why = f"subscription {subscription} has {backlog:,} messages left, and no consumer"
    # C++ and Python consumers may have gone to green, or be dead, when their topic was unloaded during the flip.
    return f"{why}; it had {consumers}: restart them, with the address of {cluster}" if consumers else why


def why_attached(subscription: str, seconds: float) -> str:
    """Why consumers that have read all are not on green, for some seconds."""
    why = f"subscription {subscription} has 0 messages left, and its consumers are not sent away"
    # Two threads of a broker can block each other indefinitely here.
    return why if seconds < CLIENTS_WITHIN else f"{why} for {seconds:.0f} s. Its broker may hang: restart that broker"


def are_too_many(missing: int, clients: int, limit: float) -> bool:
    """Return whether so many clients are missing that their namespace may not be able to use green.

    Args:
        missing: clients that did not come.
        clients: all that there were.
        limit: largest share that may be missing, if not all are.
    """
    return missing > 0 and (missing == clients or missing / clients > limit)


def _absent(before: TopicClients, there: TopicClients) -> Iterable[tuple[str, int]]:
    """Clients that are not there: what they are, and how many."""
    for producer in sorted(set(before.producers) - set(there.producers)):
        yield f"producer {producer}", 1
    consumers: Mapping[str, int] = there.consumers
    for name, count in sorted(before.consumers.items()):
        if (fewer := count - consumers.get(name, 0)) > 0:
            yield f"{fewer} of {count} consumers of {name}", fewer
