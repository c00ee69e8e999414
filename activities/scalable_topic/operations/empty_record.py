"""The verb `clear_empty`."""

from __future__ import annotations

from activities.scalable_topic.operations.context import Hand, Look
from clients.errors import StoreConflict
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable, unreadable
from models.scalable_topic.operation_results import TopicOutcome, Verdict


def look_at_record(look: Look) -> TopicOutcome:
    """Whether the record would be removed."""
    match state := read_scalable(look.store, look.name).state:
        case RecordState.EMPTY:
            return look.outcome(Verdict.CHANGED, "its record, which has no value, would be removed")
        case RecordState.BROKEN:
            raise StoreConflict(f"{unreadable(look.name, state)}; it stays")
        case _:
            return look.outcome(Verdict.UNCHANGED, f"its record is {state}")


def remove_empty(hand: Hand) -> TopicOutcome:
    """Remove a record without a value, with the reports of load that have made it.

    Where a broker is creating the topic just then, that helps it: it cannot write its record over an empty one.
    """
    before = look_at_record(hand)
    if before.verdict is Verdict.UNCHANGED:
        return before
    clear_empty(hand.store, hand.name, hand.guard.check)
    if (state := read_scalable(hand.store, hand.name).state) is RecordState.EMPTY:
        raise StoreConflict("its record is there again, without a value: a broker still owns a segment of that name")
    return hand.outcome(Verdict.CHANGED, f"its record, which had no value, was removed, and is {state} now")
