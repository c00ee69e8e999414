"""Terminated topics whose ledgers are still needed, according to the metadata store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.failback import holds_only_copies
from activities.blue_green.topics import DeletionRules, needed_by, retained
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.admin.topics import InternalInfo, is_brokers_cursor
from clients.pulsar.names import TopicName
from spark.blue_green.copy_record import CopyRecord

_TOPIC = TopicName.parse("persistent://t/space/topic")
_END = {"ledgerId": 6, "entryId": 1}
_OWN = ["__compaction", "pulsar.dedup", "pulsar.repl.far"]


def _ended(cursors: dict[str, object]) -> InternalInfo:
    """Return a topic with three entries in ledger 5 and two in ledger 6, in which it was ended."""
    ledgers = [{"ledgerId": 5, "entries": 3}, {"ledgerId": 6, "entries": 0}]
    return InternalInfo.model_validate({"ledgers": ledgers, "terminatedPosition": _END, "cursors": cursors})


@pytest.mark.parametrize("name", _OWN)
def test_cursors_of_brokers(name: str) -> None:
    """The cursors of compaction, deduplication and replication belong to brokers; no client can consume them."""
    assert is_brokers_cursor(name)
    assert not is_brokers_cursor(f"my-{name}")


def test_subscriptions_need_a_topic() -> None:
    """Subscriptions of clients are named, and the cursors of deduplication and compaction are not."""
    assert needed_by(_ended({"__compaction": {}, "pulsar.dedup": {}, "orders": {}})) == "subscriptions orders"


@pytest.mark.parametrize(
    ("cursor", "is_needed"),
    [
        ({"cursorsLedgerId": -1, "markDelete": _END}, False),
        ({"cursorsLedgerId": -1, "markDelete": {"ledgerId": 6, "entryId": 0}}, True),
        ({"cursorsLedgerId": 8, "markDelete": _END}, True),
        ({"markDelete": _END}, True),
    ],
)
def test_a_drained_subscription_needs_nothing(cursor: dict[str, object], *, is_needed: bool) -> None:
    """Its stored position counts where it is the newest: with a ledger of the cursor, it was reset perhaps."""
    assert bool(needed_by(_ended({"orders": cursor}))) is is_needed
    ledgers = [{"ledgerId": 5, "entries": 3}, {"ledgerId": 6}, {"ledgerId": 7}]
    fields = {"ledgers": ledgers, "terminatedPosition": _END, "cursors": {"orders": cursor}}
    assert needed_by(InternalInfo.model_validate(fields)) == "subscriptions orders"


def test_a_topic_whose_end_is_unknown_is_needed() -> None:
    """The entries of the last ledger are not stored before a topic is terminated, so its backlog is not known."""
    cursor = {"cursorsLedgerId": -1, "markDelete": {"ledgerId": 5, "entryId": 2}}
    ledgers = [{"ledgerId": 5, "entries": 3}, {"ledgerId": 6, "entries": 0}]
    fields = {"ledgers": ledgers, "cursors": {"orders": cursor}}
    assert needed_by(InternalInfo.model_validate(fields)) == "subscriptions orders"


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


# Two ledgers of green with three and two entries: `_ended`.
_COPIES = CopyRecord(start=(1, -1), runs=((1, 0, 5, 0, 3), (1, 3, 6, 0, 2)))


def test_copies_are_recognized() -> None:
    """A topic whose entries are all in the record of a copy holds only copies, also if its first ledger is deleted."""
    assert holds_only_copies(_ended({"orders": {}}), _COPIES)
    trimmed = InternalInfo.model_validate({"ledgers": [{"ledgerId": 6}], "terminatedPosition": _END})
    assert holds_only_copies(trimmed, _COPIES)


@pytest.mark.parametrize("runs", [(), ((1, 0, 5, 0, 3),), ((1, 0, 5, 0, 3), (1, 3, 6, 0, 1)), ((1, 0, 5, 0, 6),)])
def test_other_messages_are_not_copies(runs: tuple[tuple[int, int, int, int, int], ...]) -> None:
    """A topic with an entry that is not in the record may hold messages of clients."""
    assert not holds_only_copies(_ended({}), CopyRecord(start=(1, -1), runs=runs))


def test_copies_that_a_subscription_continues_with_stay() -> None:
    """Once the cursors are on green, the backlog may have been skipped on blue, so that only green has it."""
    placed = _COPIES.model_copy(update={"copied_subscriptions": ("orders",)})
    assert not holds_only_copies(_ended({"orders": {}}), placed)


def test_messages_after_the_end_are_not_copies() -> None:
    """A topic that its broker opened again after its end may hold messages in a ledger of unknown length."""
    ledgers = [{"ledgerId": 5, "entries": 3}, {"ledgerId": 6}, {"ledgerId": 7}]
    reopened = InternalInfo.model_validate({"ledgers": ledgers, "terminatedPosition": _END})
    assert not holds_only_copies(reopened, _COPIES)


def _rules(*, discard: bool = False) -> DeletionRules:
    """Return the rules of a cleanup of a cluster that keeps no consumed messages."""

    def retention(_: TopicName) -> Retention:
        return Retention(retention_time_in_minutes=0, retention_size_in_m_b=0)

    admin = cast("PulsarAdminReader", SimpleNamespace(topics=SimpleNamespace(retention=retention)))
    return DeletionRules(admin, "green", discard, "cleanup_retained")
