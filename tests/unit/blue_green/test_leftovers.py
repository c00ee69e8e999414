"""Terminated topics whose ledgers are still needed, according to the metadata store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.topics import DeletionRules, needed_by, retained
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import InternalInfo, is_brokers_cursor
from clients.pulsar.names import TopicName

_TOPIC = TopicName.parse("persistent://t/space/topic")
_OWN = ["__compaction", "pulsar.dedup", "pulsar.repl.far"]


def _ended(cursors: dict[str, object]) -> InternalInfo:
    """Return a topic with three entries in ledger 5 and two in ledger 6, in which it was ended."""
    ledgers = [{"ledgerId": 5, "entries": 3}, {"ledgerId": 6, "entries": 0}]
    ended = {"ledgerId": 6, "entryId": 1}
    return InternalInfo.model_validate({"ledgers": ledgers, "terminatedPosition": ended, "cursors": cursors})


@pytest.mark.parametrize("name", _OWN)
def test_cursors_of_brokers(name: str) -> None:
    """The cursors of compaction, deduplication and replication belong to brokers; no client can consume them."""
    assert is_brokers_cursor(name)
    assert not is_brokers_cursor(f"my-{name}")


def test_subscriptions_need_a_topic() -> None:
    """Subscriptions of clients are named, and the cursors of deduplication and compaction are not."""
    assert needed_by(_ended({"__compaction": {}, "pulsar.dedup": {}, "orders": {}})) == "subscriptions orders"


@pytest.mark.parametrize(
    ("mark", "needed"),
    [
        ({"ledgerId": 6, "entryId": 1}, ""),
        ({"ledgerId": 6, "entryId": 0}, "replication to far"),
        ({"ledgerId": 5, "entryId": 2}, "replication to far"),
        (None, "replication to far"),
    ],
)
def test_another_cluster_needs_a_topic(mark: dict[str, int] | None, needed: str) -> None:
    """A topic is needed until the stored position of its replicator is at the end, or where it has none."""
    assert needed_by(_ended({"pulsar.repl.far": {"markDelete": mark} if mark else {}})) == needed


def test_an_empty_topic_is_not_needed_by_another_cluster() -> None:
    """A replicator that has never sent anything waits for nothing where the topic has no entries."""
    empty = {"ledgers": [{"ledgerId": 5}], "terminatedPosition": {"ledgerId": 5, "entryId": -1}}
    assert not needed_by(InternalInfo.model_validate({**empty, "cursors": {"pulsar.repl.far": {}}}))


@pytest.mark.parametrize("entries", [3, 0])
def test_a_compacted_table_is_lost_with_its_topic(entries: int) -> None:
    """A topic that was compacted is deleted only on request, also if no entry of it is left."""
    ledgers = [{"ledgerId": 5, "entries": entries}]
    end = {"ledgerId": 5, "entryId": entries - 1}
    fields = {"ledgers": ledgers, "terminatedPosition": end}
    compacted = InternalInfo.model_validate({**fields, "cursors": {"__compaction": {}}})
    plain = InternalInfo.model_validate({**fields, "cursors": {"pulsar.dedup": {}}})
    refusal = 'green lacks the table of its compaction, and "cleanup_retained" is not set'
    assert retained(_rules(), _TOPIC, compacted) == refusal
    assert not retained(_rules(), _TOPIC, plain)
    assert not retained(_rules(discard=True), _TOPIC, compacted)


def _rules(*, discard: bool = False) -> DeletionRules:
    """Return the rules of a cleanup of a cluster that keeps no consumed messages."""

    def retention(_: TopicName) -> Retention:
        return Retention(retention_time_in_minutes=0, retention_size_in_m_b=0)

    admin = cast("PulsarAdminReader", SimpleNamespace(topics=SimpleNamespace(retention=retention)))
    return DeletionRules(admin, "green", discard, "cleanup_retained")
