"""Checks that the use of topics allows a flip: in PRECHECK, in LOAD, and while writes are held back.

A flip splits a topic between two entries. A message in chunks, or a transaction, has several entries: some would be on
blue and some on green, and no consumer would get the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from activities.blue_green.checks.client_versions import cannot_follow, lacking_address
from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.provisioning.inventory import NamespaceInventory
from activities.blue_green.topics import check_topic, topics_of
from activities.lifecycle.precheck import Findings
from activities.pulsar.await_on_brokers import LOOK_EVERY
from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.admin.topics import Client, TopicStats
from clients.pulsar.names import TopicName
from models.broker_settings import message_ttl, subscription_expiration
from models.lifecycle.failures import summarize
from models.lifecycle.status import WaitKind

# Brokers connect replicators after they have loaded a topic.
_CONNECTS_WITHIN = 15.0
_PENDING_ACKNOWLEDGEMENTS = "__transaction_pending_ack"
_TTL, _EXPIRATION = "messageTTL", "subscriptionExpirationTime"


@dataclass
class TopicUse:
    """Use of the topics of all namespaces.

    Attributes:
        chunked: topics with messages in chunks.
        transactional: topics that transactions use, with the counts.
        transaction_topics: brokers' topics with records of transactions.
        down: replicated topics with clusters that do not answer.
        unreplicated: replicated topics with messages that are not replicated yet.
    """

    chunked: list[str] = field(default_factory=list[str])
    transactional: list[str] = field(default_factory=list[str])
    transaction_topics: list[str] = field(default_factory=list[str])
    down: list[TopicName] = field(default_factory=list[TopicName])
    unreplicated: list[str] = field(default_factory=list[str])

    def add(self, task: AnyBlueGreenTask, namespace: NamespaceInventory) -> None:
        """Add the use of a namespace's topics."""
        for topic in namespace.topics.values():
            if topic.chunked:
                self.chunked.append(str(topic.name))
            for partition in topic.parts:
                if partition.stats is not None:
                    self._add_partition(partition.name, partition.stats)
        self.transaction_topics += [str(name) for name in namespace.transactions if _has_content(task, name)]

    def _add_partition(self, name: TopicName, stats: TopicStats) -> None:
        if counts := transactions_in(stats):
            self.transactional.append(f"{name} ({counts})")
        if replicators_down(stats):
            self.down.append(name)
        for remote, replication in stats.replication.items():
            if replication.replication_backlog:
                self.unreplicated.append(f"{name} ({replication.replication_backlog:,} messages for {remote})")

    def judge(self, task: AnyBlueGreenTask, findings: Findings) -> None:
        """Note a blocker for each use that a flip would break."""
        if self.chunked:
            findings.block(
                "BLUE_CHUNKED_MESSAGES",
                f"topics take messages in chunks. A flip splits such a message: its producer gets an acknowledgement, "
                f"and no consumer gets the message: {summarize(sorted(self.chunked))}",
                "disable chunking in their producers, or stop these, until the flip is complete; then unload the "
                "topics (pulsar-admin topics unload) to reset their counters. Or exclude their namespaces",
            )
        if self.transactional:
            findings.block(
                "BLUE_TRANSACTIONS",
                f"topics are used in transactions, whose coordinators stay on {task.input.cluster}: messages that such "
                f"a transaction sends to {task.input.green_cluster} are never committed, and block all later messages "
                f"of the topic: {summarize(sorted(self.transactional))}",
                "stop the clients that use transactions until the flip is complete, and start them with the address of "
                f"{task.input.green_cluster}; then unload the topics (pulsar-admin topics unload) to reset their "
                "counters. Or exclude their namespaces",
            )
        if down := _still_down(task, self.down):
            findings.block(
                "BLUE_REPLICATOR_DOWN",
                f"topics are replicated to clusters that do not answer, and would take no messages after their flip "
                f"until these do: {summarize(down)}",
                "repair these clusters, take them out of the replication clusters (pulsar-admin namespaces "
                "set-clusters), or exclude the namespaces",
            )
        if self.unreplicated:
            findings.warn(
                f"{len(self.unreplicated)} topics have messages that are not replicated to third clusters yet. While "
                "writes are held back, these must arrive within quiesce_timeout, or the batch is rolled back: "
                f"{summarize(sorted(self.unreplicated))}"
            )

    @property
    def question(self) -> str:
        """Question for the operator about transactions; empty for none."""
        if not self.transaction_topics or self.transactional:
            return ""
        return (
            "transactions were used, but no topic takes messages of one now. Clients that use them, also if they only "
            "acknowledge messages in them, must not be redirected: acknowledgements on green are never committed, nor "
            "aborted. Stop them until the flip is complete, and start them with green's address. Records of "
            f"transactions are in {summarize(sorted(self.transaction_topics))}"
        )


def check_expiry(
    task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory, brokers: Mapping[str, str]
) -> None:
    """Note a blocker for subscriptions that green may delete while their consumers still read on blue.

    Messages that may expire in that time cause a warning. Brokers delete a subscription without consumers after some
    time, with its backlog. On green no subscription has consumers until blue is drained, but producers send there.
    The time starts again right before writes are held back, so it must last for the steps until the flag as well.

    Args:
        task: the step.
        findings: receives blockers and warnings.
        namespace: namespace of blue.
        brokers: settings of green's brokers.
    """
    ttl = message_ttl(namespace.policies.raw, brokers)
    expirations = expirations_of(namespace, brokers)
    drain = task.input.drain_timeout.total_seconds()
    unused = drain + (4 * task.input.quiesce_timeout + task.input.flip_timeout).total_seconds()
    short, old = list[str](), list[str]()
    for name, topic in sorted(namespace.topics.items()):
        used = topic.durable
        minutes = expirations.get(name, 0)
        # mutant: blue-green/subscriptions-that-expire-pass
        if not all(sub.replicated for sub in used) and 0 < minutes * 60 <= unused:
            short.append(f"{name} (after {minutes} minutes)")
        seconds = ttl if (own := topic.own_policy(_TTL)) is None else own
        if topic.persistent and used and 0 < seconds <= drain:
            old.append(f"{name} (after {seconds} s)")
    if old:
        findings.warn(
            f"messages of {len(old)} topics expire within drain_timeout: consumers that still read on "
            f"{task.input.cluster} may miss messages that {task.input.green_cluster} takes: {summarize(old)}"
        )
    if short:
        findings.block(
            "GREEN_EXPIRES_SUBSCRIPTIONS",
            f"{task.input.green_cluster} would delete subscriptions with their messages while their consumers still "
            f"read on {task.input.cluster}, up to {unused / 60:.0f} minutes (drain_timeout, and the limits of the "
            f"steps before it): {summarize(short)}",
            "increase the expiration until the migration is complete (pulsar-admin namespaces "
            "set-subscription-expiration-time --time 0, for topics topicPolicies set-subscription-expiration-time), or "
            "reduce drain_timeout",
        )


def expirations_of(namespace: NamespaceInventory, brokers: Mapping[str, str]) -> dict[TopicName, int]:
    """Return after how many minutes brokers delete subscriptions without consumers, by persistent topic.

    Topics that keep their subscriptions indefinitely are left out.

    Args:
        namespace: namespace of blue, whose policies green has as well.
        brokers: settings of green's brokers.
    """
    given = subscription_expiration(namespace.policies.raw, brokers)
    minutes_by_topic = {
        name: given if (own := topic.own_policy(_EXPIRATION)) is None else own
        for name, topic in namespace.topics.items()
        if topic.persistent
    }
    return {name: minutes for name, minutes in minutes_by_topic.items() if minutes > 0}


def _has_content(task: AnyBlueGreenTask, name: TopicName) -> bool:
    """Return whether a brokers' topic has records of transactions: topics of snapshots also exist without them."""
    stats = check_topic(task.blue.admin, name).stats
    return stats is None or stats.storage_size > 0


def pending_acknowledgements(store: CasReader, namespace: str) -> list[str]:
    """Return the logs in which brokers keep acknowledgements of transactions.

    Brokers do not list them as topics, and count no transaction in a topic that is only consumed in transactions.

    Args:
        store: blue's metadata store.
        namespace: `tenant/namespace`.
    """
    folder = f"/managed-ledgers/{namespace}/persistent"
    names = map(unquote_plus, store.children(folder))
    return [f"persistent://{namespace}/{name}" for name in names if name.endswith(_PENDING_ACKNOWLEDGEMENTS)]


def _still_down(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[str]:
    """Return the topics whose replicators do not connect, with the clusters."""
    deadline = task.context.deadline(_CONNECTS_WITHIN)
    while topics:
        states = task.each(topics, lambda topic: check_topic(task.blue.admin, topic))
        down = {state.topic: names for state in states if state.stats and (names := replicators_down(state.stats))}
        if not down or deadline.passed:
            return [f"{topic} ({', '.join(names)})" for topic, names in sorted(down.items())]
        topics = list(down)
        task.context.pause(LOOK_EVERY)
    return []


CHUNKS = "its producers send messages in chunks"


def clients_in(stats: TopicStats) -> Iterator[Client]:
    """Yield all clients that are connected to a topic."""
    yield from stats.publishers
    for sub in stats.subscriptions.values():
        yield from sub.consumers


def transactions_in(stats: TopicStats) -> str:
    """Return the counts of transactions in a topic since it was loaded; empty for none."""
    counts = {
        "open": stats.ongoing_txn_count,
        "committed": stats.committed_txn_count,
        "aborted": stats.aborted_txn_count,
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0)


def replicators_down(stats: TopicStats) -> list[str]:
    """Return the clusters whose replicators are not connected, unless the topic is idle."""
    return sorted(
        remote
        for remote, replication in stats.replication.items()
        if not replication.connected and (replication.replication_backlog or stats.publishers)
    )


def require_movable(task: AnyBlueGreenTask, topics: Iterable[tuple[TopicName, TopicStats]]) -> None:
    """Repeat PRECHECK's checks of topics, since days may have passed.

    Raises:
        StoreConflict: clients use a topic in a way that a flip would break.
    """
    if problems := [f"{topic}: {why}" for topic, stats in topics for why in _problems(task, stats)]:
        raise StoreConflict(f"nothing is flipped: a flip would break the use of topics: {summarize(problems)}")


def await_movable(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], *, drained: bool) -> None:
    """Wait until the replicators of all topics of a batch run, and check the topics as `require_movable` does.

    A terminated topic with a replication backlog takes no messages until the backlog is replicated.

    Args:
        task: the step.
        guards: guards of the namespaces.
        drained: wait also until all messages are replicated, while writes are held back.

    Raises:
        StoreConflict: a topic cannot be moved, or a replicator is not ready within `quiesce_timeout`.
    """
    deadline = task.context.deadline(task.input.quiesce_timeout.total_seconds())
    topics = [topic for guard in guards for topic in topics_of(task.blue.admin, guard.namespace)]
    while topics:
        states = task.each(topics, lambda topic: check_topic(task.blue.admin, topic))
        loaded = [(state.topic, state.stats) for state in states if state.stats]
        require_movable(task, loaded)
        waiting = {topic: why for topic, stats in loaded if (why := _unready(stats, drained=drained))}
        if not waiting:
            break
        reasons = summarize([f"{topic}: {why}" for topic, why in waiting.items()])
        if deadline.passed:
            raise StoreConflict(f"nothing is flipped: topics would take no messages after their flip: {reasons}")
        task.context.waiting_for(WaitKind.CLIENTS, f"replication: {reasons}")
        task.context.pause(LOOK_EVERY)
        topics = list(waiting)
    task.context.clear_waiting()


def _problems(task: AnyBlueGreenTask, stats: TopicStats) -> Iterator[str]:
    if stats.msg_chunk_published:  # mutant: blue-green/chunks-that-came-since-the-precheck
        yield CHUNKS
    if counts := transactions_in(stats):  # mutant: blue-green/transactions-since-the-precheck
        yield f"it is used in transactions ({counts})"
    for client in clients_in(stats):  # mutant: blue-green/old-clients-since-the-precheck
        if why := cannot_follow(client.client_version or "", lacks_address=lacking_address(task.input.green)):
            yield f"the client {client.address} cannot follow: {why}"


def _unready(stats: TopicStats, *, drained: bool) -> str:
    """Return why a topic's replicators are not ready; empty if they are."""
    if not drained:  # mutant: blue-green/backlog-of-replication-at-the-flag
        down = replicators_down(stats)  # mutant: blue-green/replicators-that-are-down
        return f"{', '.join(down)} is not connected" if down else ""
    counts = ((remote, replication.replication_backlog) for remote, replication in stats.replication.items())
    return ", ".join(f"{count:,} messages are not in {remote} yet" for remote, count in counts if count)
