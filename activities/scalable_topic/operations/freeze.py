"""A topic's own auto-scale policy, held while its segments are changed.

Brokers split and merge on their own, and two changes at once leave segments without a topic behind them (5.0.1). The
policy changes where brokers keep it, by compare-and-set: a request that a worker sends late would leave the topic
frozen for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from activities.pulsar.namespace_guard import RecordGuard
from activities.scalable_topic.operations.context import Hand
from clients.cas.store import CasStore
from clients.errors import StoreNotFound
from clients.pulsar.json_records import Record, change_record, read_record
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import with_value
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import Changed
from models.scalable_topic.operation_claims import OperatedTopic

_FIELD = "autoScalePolicy"


def freeze(hand: Hand) -> None:
    """Have brokers leave the segments alone; what stood before is noted first. Harmless when done twice.

    A split or merge that a broker has begun already comes to its end.
    """
    if _is_frozen(_policy(read_record(hand.store, hand.name.scalable_path) or {})):
        return

    def frozen(record: Record) -> Record:
        if _is_frozen(now := _policy(record)):
            return record
        ours = {**(now or {}), "enabled": False}
        hand.guard.note(auto_scale=Changed(before=now, ours=ours))
        return with_value(record, (_FIELD,), ours)

    change_record(hand.store, hand.name.scalable_path, hand.guard.require, frozen)


def thaw(store: CasStore, guard: RecordGuard[OperatedTopic], topic: TopicName) -> Iterator[str]:
    """Put the policy back, and forget it; says in words what somebody else has set meanwhile, and stays."""
    noted = guard.require().auto_scale
    if noted is None:
        return
    kept = ""

    def thawed(record: Record) -> Record:
        nonlocal kept
        now, kept = _policy(record), ""
        if now == noted.ours:
            return with_value(record, (_FIELD,), noted.before)
        if now != noted.before:
            kept = f"the auto-scale policy of {topic}, {now or 'none'}, was set by somebody else, and stays"
        return record

    # Where the topic is gone, so is its policy.
    if read_scalable(store, topic).state is RecordState.GOOD:
        with suppress(StoreNotFound):
            change_record(store, topic.scalable_path, guard.require, thawed)
    guard.note(auto_scale=None)
    if kept:
        yield kept


def _is_frozen(policy: Record | None) -> bool:
    return policy is not None and policy.get("enabled") is False


def _policy(record: Record) -> Record | None:
    """The policy without what is not set, which brokers may write as null."""
    found = record.get(_FIELD)
    return None if found is None else {name: value for name, value in found.items() if value is not None}
