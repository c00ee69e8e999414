"""Obstacles in a regular topic that a scalable one could not serve."""

from __future__ import annotations

import pytest

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, TopicPartition
from activities.scalable_topic.checks.topic import check_topic
from activities.scalable_topic.regular_topic import waits_for
from clients.pulsar.admin.topics import Client, TopicStats
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, ScalableRecord

_TOPIC = TopicName("acme", "shop", "orders")
_V5 = Client(producer_name="p", metadata={"__pulsar.v5.managed": "true"})


def _with(**stats: object) -> TopicInventory:
    return TopicInventory(_TOPIC, parts=(TopicPartition(_TOPIC, TopicStats.model_validate(stats)),))


@pytest.mark.parametrize("force", [False, True])
def test_open_transactions(force: bool) -> None:
    """The flip waits for transactions to end, also with `force`: a terminated topic cannot commit them."""
    topic = _with(ongoingTxnCount=2)
    assert waits_for(topic, force=force) == f"open transactions: {_TOPIC} (2)"
    findings = Findings()
    check_topic(findings, topic, ScalableRecord(RecordState.ABSENT))
    assert f"the migration of {_TOPIC} waits until transactions have ended: {_TOPIC} (2)" in findings.warnings


@pytest.mark.parametrize("ended", ["committedTxnCount", "abortedTxnCount"])
def test_producers_that_may_begin_a_transaction(ended: str) -> None:
    """A topic that has had transactions is not flipped under a producer, which may begin another at any moment."""
    assert waits_for(_with(**{ended: 1}, publishers=[_V5])) == (
        f"producers on topics with transactions, which may begin another: p on {_TOPIC}"
    )
    assert waits_for(_with(**{ended: 1})) == ""
    assert waits_for(_with(publishers=[_V5])) == ""


@pytest.mark.parametrize("force", [False, True])
def test_producers_of_chunks(force: bool) -> None:
    """A topic with chunked messages is not flipped while a producer is connected: a message could be cut in two."""
    assert waits_for(_with(msgChunkPublished=True, publishers=[_V5]), force=force) == (
        f"producers of chunked messages, of which one could be cut in two: p on {_TOPIC}"
    )
    assert waits_for(_with(msgChunkPublished=True), force=force) == ""


def test_clients_that_are_waited_for_without_force_alone() -> None:
    """With `force` the flip waits neither for legacy clients nor for an ordered backlog."""
    topic = _with(subscriptions={"stream": {"type": "Failover", "msgBacklog": 3}}, publishers=[Client()])
    assert "ordered subscriptions with a backlog: stream (3 messages)" in waits_for(topic)
    assert "1 connections of clients that cannot follow" in waits_for(topic)
    assert waits_for(topic, force=True) == ""
