"""The verb `audit`: what will lose messages, or keeps them from clients, when brokers next change segments or look."""

from __future__ import annotations

from collections.abc import Iterator

from activities.scalable_topic.operations.context import Hand, Look
from activities.scalable_topic.operations.subscriptions import Known, known_subscriptions, lacking, secure
from activities.scalable_topic.regular_topic import is_terminated
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, TopicName
from models.lifecycle.failures import some
from models.scalable_topic.operation_results import TopicOutcome, Verdict
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults


def audit(look: Look) -> TopicOutcome:
    """What is wrong with a topic, in words.

    Raises:
        StoreConflict: the record is no good.
    """
    layout = look.layout()
    known = known_subscriptions(look, layout)
    found = [*_curable(look, layout, known), *_others(look, layout)]
    if not found:
        told = f"{len(known)} subscriptions with a record and a cursor on each of {len(layout.active)} segments"
        return look.outcome(Verdict.UNCHANGED, told)
    return look.outcome(Verdict.FOUND, "; ".join(found))


def fix(hand: Hand) -> TopicOutcome:
    """Record subscriptions that brokers do not know, and make segments and cursors that are missing.

    Raises:
        StoreConflict: something is not there after a broker said that it is.
    """
    layout = hand.layout()
    known = known_subscriptions(hand, layout)
    others = list(_others(hand, layout))
    found = list(_curable(hand, layout, known))
    if not found:
        return hand.outcome(Verdict.FOUND, "; ".join(others)) if others else audit(hand)
    done = secure(hand, layout.active)
    told = "; ".join([*(f"cured: {one}" for one in found), *others])
    verdict = Verdict.FOUND if others else Verdict.CHANGED
    return hand.outcome(verdict, told, registered=done.registered, healed=done.healed)


# Inside ---------------------------------------------------------------------------------------------------------------


def _curable(look: Look, layout: SegmentLayout, known: list[Known]) -> Iterator[str]:
    if lost := [one.name for one in known if not one.recorded]:
        yield f"{some(lost)} have no record: what they have not consumed is lost at the next split, merge or sweep"
    for descriptor, lack in lacking(look, layout.active, [one.name for one in known if one.recorded]).items():
        yield f"segment {descriptor} {lack}"


def _others(look: Look, layout: SegmentLayout) -> Iterator[str]:
    yield from (f"layout: {fault}" for fault in layout_faults(layout))
    for one in layout.segments.values():
        if one.active and _has_ended(look, one.descriptor):
            yield (
                f"segment {one.descriptor} takes no messages: a broker died amid its split or merge. Cure: split with "
                f'"segment": {one.segment_id}'
            )
        if one.legacy_topic_name and _takes_messages(look, one.legacy_topic_name):
            yield f"{one.legacy_topic_name} still takes messages, which nobody reads. Cure: terminate it"


def _has_ended(look: Look, descriptor: str) -> bool:
    node = look.store.get(SegmentName(look.name, descriptor).managed_ledger_path)
    return node is not None and decode_ledger_info(node.value).HasField("terminatedPosition")


def _takes_messages(look: Look, topic: str) -> bool:
    try:
        return not is_terminated(look.reader, TopicName.parse(topic))
    except AdminNotFound:
        return False
