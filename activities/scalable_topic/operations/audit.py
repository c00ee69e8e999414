"""Operation `audit`: faults that would lose messages, or hide them from clients, at the next change of segments."""

from __future__ import annotations

from collections.abc import Iterator

from activities.scalable_topic.operations.context import TopicEditor, TopicView
from activities.scalable_topic.regular_topic import is_terminated
from activities.scalable_topic.subscriptions import KnownSubscription, lacking
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.names import SegmentName, TopicName
from models.lifecycle.failures import summarize
from models.scalable_topic.operation_state import TopicOutcome, Verdict
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults


def audit(view: TopicView) -> TopicOutcome:
    """Return descriptions of the faults of a topic.

    Raises:
        StoreConflict: the record is empty or cannot be read.
    """
    layout = view.layout()
    subscriptions = view.known_subscriptions(layout)
    faults = [*_curable(view, layout, subscriptions), *_others(view, layout)]
    if not faults:
        description = (
            f"{len(subscriptions)} subscriptions with a record and a cursor on each of {len(layout.active)} segments"
        )
        return view.outcome(Verdict.UNCHANGED, description)
    return view.outcome(Verdict.FOUND, "; ".join(faults))


def fix(editor: TopicEditor) -> TopicOutcome:
    """Record subscriptions that brokers do not know, and create missing segments and cursors.

    Raises:
        StoreConflict: something is still missing although a broker reported success.
    """
    layout = editor.layout()
    subscriptions = editor.known_subscriptions(layout)
    others = list(_others(editor, layout))
    curable = list(_curable(editor, layout, subscriptions))
    if not curable:
        return editor.outcome(Verdict.FOUND, "; ".join(others)) if others else audit(editor)
    done = editor.secure(layout.active)
    description = "; ".join([*(f"cured: {fault}" for fault in curable), *others])
    verdict = Verdict.FOUND if others else Verdict.CHANGED
    return editor.outcome(verdict, description, registered=done.registered, healed=done.healed)


# Inside ---------------------------------------------------------------------------------------------------------------


def _curable(view: TopicView, layout: SegmentLayout, subscriptions: list[KnownSubscription]) -> Iterator[str]:
    if lost := [subscription.name for subscription in subscriptions if not subscription.recorded]:
        yield f"{summarize(lost)} have no record: what they have not consumed is lost at the next split, merge or sweep"
    for descriptor, lack in lacking(
        view.store,
        view.name,
        layout.active,
        [subscription.name for subscription in subscriptions if subscription.recorded],
    ).items():
        yield f"segment {descriptor} {lack}"


def _others(view: TopicView, layout: SegmentLayout) -> Iterator[str]:
    yield from (f"layout: {fault}" for fault in layout_faults(layout))
    for segment in layout.segments.values():
        if segment.active and _has_ended(view, segment.descriptor):
            yield (
                f"segment {segment.descriptor} takes no messages: a broker died during its split or merge. Cure: split "
                f'with "segment": {segment.segment_id}'
            )
        if segment.legacy_topic_name and _takes_messages(view, segment.legacy_topic_name):
            yield f"{segment.legacy_topic_name} still takes messages, which no consumer reads. Cure: terminate it"


def _has_ended(view: TopicView, descriptor: str) -> bool:
    node = view.store.get(SegmentName(view.name, descriptor).managed_ledger_path)
    return node is not None and decode_ledger_info(node.value).HasField("terminatedPosition")


def _takes_messages(view: TopicView, topic: str) -> bool:
    try:
        return not is_terminated(view.reader, TopicName.parse(topic))
    except AdminNotFound:
        return False
