"""What PRECHECK asks of how topics are used: whether a flip would cut something in two, or stop its clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.inventory import NamespaceInventory
from activities.blue_green.movable import replicators_down, transactions_in
from activities.blue_green.topics import look_at
from activities.lifecycle.precheck import Findings
from activities.pulsar.overridden_policies import LOOK_EVERY
from clients.pulsar.admin.topics import TopicStats
from clients.pulsar.names import TopicName
from models.broker_settings import message_ttl, subscription_expiration
from models.lifecycle.failures import some

# Brokers connect replicators after they have loaded a topic.
_CONNECTS_WITHIN = 15.0
_PENDING_ACKNOWLEDGEMENTS = "__transaction_pending_ack"
_TTL, _EXPIRATION = "messageTTL", "subscriptionExpirationTime"


@dataclass
class TopicUse:
    """What was found in all namespaces.

    Attributes:
        chunked: topics that take messages in chunks.
        transactional: topics that transactions use, with their counts.
        transaction_topics: topics of brokers that hold what transactions have done.
        down: replicated topics, with clusters that do not answer.
        behind: replicated topics, with messages that are not there yet.
    """

    chunked: list[str] = field(default_factory=list[str])
    transactional: list[str] = field(default_factory=list[str])
    transaction_topics: list[str] = field(default_factory=list[str])
    down: list[TopicName] = field(default_factory=list[TopicName])
    behind: list[str] = field(default_factory=list[str])

    def add(self, task: AnyBlueGreenTask, namespace: NamespaceInventory) -> None:
        """Add what the topics of a namespace are used for."""
        for topic in namespace.topics.values():
            if topic.chunked:
                self.chunked.append(str(topic.name))
            for part in topic.parts:
                if part.stats is not None:
                    self._add_part(part.name, part.stats)
        self.transaction_topics += [str(name) for name in namespace.transactions if _has_content(task, name)]

    def _add_part(self, name: TopicName, stats: TopicStats) -> None:
        if counts := transactions_in(stats):
            self.transactional.append(f"{name} ({counts})")
        if replicators_down(stats):
            self.down.append(name)
        for remote, replication in stats.replication.items():
            if replication.replication_backlog:
                self.behind.append(f"{name} ({replication.replication_backlog:,} messages for {remote})")

    def judge(self, task: AnyBlueGreenTask, findings: Findings) -> None:
        """Note a blocker for each use that a flip would break."""
        if self.chunked:
            findings.block(
                "BLUE_CHUNKED_MESSAGES",
                f"topics take messages in chunks. A flip cuts such a message in two: its producer gets an "
                f"acknowledgement, and no consumer gets the message: {some(sorted(self.chunked))}",
                "switch chunking off in their producers, or stop these, until the flip is over; then unload the topics "
                "(pulsar-admin topics unload), which makes their broker forget it. Or exclude their namespaces",
            )
        if self.transactional:
            findings.block(
                "BLUE_TRANSACTIONS",
                f"topics are used in transactions, whose coordinators stay on {task.input.cluster}: what such a "
                f"transaction sends to {task.input.green_cluster} is never committed, and keeps all later messages of "
                f"the topic from all consumers: {some(sorted(self.transactional))}",
                "stop the clients that use transactions until the flip is over, and start them with the address of "
                f"{task.input.green_cluster}; then unload the topics (pulsar-admin topics unload), which makes their "
                "broker forget these counts. Or exclude their namespaces",
            )
        if down := _still_down(task, self.down):
            findings.block(
                "BLUE_REPLICATOR_DOWN",
                f"topics are replicated to clusters that do not answer, and would take no messages from their flip on "
                f"until these do: {some(down)}",
                "have these clusters answer, take them out of the replication clusters (pulsar-admin namespaces "
                "set-clusters), or exclude the namespaces",
            )
        if self.behind:
            findings.warn(
                f"{len(self.behind)} topics have messages that are not in third clusters yet. While writes are held "
                "back, these have to arrive within quiesce_timeout, or the batch is undone: "
                f"{some(sorted(self.behind))}"
            )

    @property
    def question(self) -> str:
        """What only an operator knows; empty for nothing."""
        if not self.transaction_topics or self.transactional:
            return ""
        return (
            "transactions were used, and no topic takes part in one now. Clients that use them must not be sent to "
            "another cluster: stop them until the flip is over, and start them with its address. Traces of them are in "
            f"{some(sorted(self.transaction_topics))}"
        )


def check_expiry(
    task: AnyBlueGreenTask, findings: Findings, namespace: NamespaceInventory, brokers: Mapping[str, str]
) -> None:
    """Note a blocker for topics whose subscriptions green may delete while their consumers still read on blue.

    Messages that may expire in that time are a warning.

    Brokers delete a subscription without consumers after some time, with its backlog. On green none has a consumer
    until blue is drained, and producers send to it.

    Args:
        task: the step.
        findings: where blockers go.
        namespace: of blue.
        brokers: settings of green's.
    """
    policies = namespace.policies.raw
    expiration, ttl = subscription_expiration(policies, brokers), message_ttl(policies, brokers)
    drain = task.input.drain_timeout.total_seconds()
    short, old = list[str](), list[str]()
    for name, topic in sorted(namespace.topics.items()):
        used = topic.durable
        minutes = expiration if (own := topic.own_policy(_EXPIRATION)) is None else own
        # mutant: blue-green/subscriptions-that-expire-pass
        if topic.persistent and not all(sub.replicated for sub in used) and 0 < minutes * 60 <= drain:
            short.append(f"{name} (after {minutes} minutes)")
        seconds = ttl if (own := topic.own_policy(_TTL)) is None else own
        if topic.persistent and used and 0 < seconds <= drain:
            old.append(f"{name} (after {seconds} s)")
    if old:
        findings.warn(
            f"messages of {len(old)} topics expire within drain_timeout: those that {task.input.green_cluster} takes "
            f"while consumers still read on {task.input.cluster} may be lost to them: {some(old)}"
        )
    if short:
        findings.block(
            "GREEN_EXPIRES_SUBSCRIPTIONS",
            f"{task.input.green_cluster} would delete subscriptions, with the messages that it has for them, while "
            f"their consumers still read on {task.input.cluster}, for up to drain_timeout: {some(short)}",
            "let subscriptions live longer until the migration is over (pulsar-admin namespaces "
            "set-subscription-expiration-time --time 0, for topics topicPolicies set-subscription-expiration-time), or "
            "give a shorter drain_timeout",
        )


def _has_content(task: AnyBlueGreenTask, name: TopicName) -> bool:
    """Whether transactions have used a topic of brokers: those of snapshots are there also without any."""
    if _PENDING_ACKNOWLEDGEMENTS in name.topic:
        return True
    stats = look_at(task.blue, name).stats
    return stats is None or stats.storage_size > 0


def _still_down(task: AnyBlueGreenTask, topics: Sequence[TopicName]) -> list[str]:
    """Return those of some topics whose replicators do not connect, with the clusters."""
    end = time.monotonic() + _CONNECTS_WITHIN
    while topics:
        looks = task.each(topics, lambda topic: look_at(task.blue, topic))
        down = {look.topic: names for look in looks if look.stats and (names := replicators_down(look.stats))}
        if not down or time.monotonic() > end:
            return [f"{topic} ({', '.join(names)})" for topic, names in sorted(down.items())]
        topics = list(down)
        task.context.pause(LOOK_EVERY)
    return []
