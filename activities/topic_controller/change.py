"""A split or a merge, in the proposal's order (PIP-468, "Split Protocol" and "Merge Protocol").

Places of subscriptions first, then the end of what takes messages, then the layout: a crash between any two of these
leaves no message without a place and, once the next attempt has gone on, no hash without a segment.
"""

from __future__ import annotations

import time

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import segment_topic
from activities.topic_controller.publish import publish
from activities.topic_controller.segments import end_segment, make_segments, places, require_places
from clients.errors import StoreConflict
from models.segment import LayoutError, SegmentInfo
from models.topic_controller.record import ControlledLayout, Mutation
from models.topic_controller.state import Sealed


def prepare(task: ControllerTask, mutation: Mutation) -> ControlledLayout:
    """Note the change, and make the new segments with a place of each subscription.

    Raises:
        StoreConflict: the change does not fit the layout as it is.
    """
    record = task.records.change(lambda found: found if _is_begun(found, mutation) else _begun(found, mutation))
    if record.last != mutation:
        make_segments(task, mutation.made(record), sorted(_subscriptions(task, mutation.sealed(record))))
    return record


def seal(task: ControllerTask, mutation: Mutation) -> Sealed:
    """End the old segments, one after the other, and give places to subscriptions that came meanwhile.

    Raises:
        StoreConflict: another change is under way.
    """
    record = _under_way(task, mutation)
    if record.last == mutation:
        return Sealed(subscriptions=())
    old, new = mutation.sealed(record), mutation.made(record)
    for segment in old:
        end_segment(task, segment)
    # Behind the end: what consumes the old segments now has to go on in the new ones.
    found = sorted(_subscriptions(task, old))
    require_places(task, new, found)
    return Sealed(subscriptions=tuple(found))


def commit(task: ControllerTask, mutation: Mutation) -> ControlledLayout:
    """Put the new layout in the place of the old one, and publish it.

    Raises:
        StoreConflict: another change is under way.
    """
    now = time.time_ns() // 1_000_000

    def done(found: ControlledLayout) -> ControlledLayout:
        if found.last == mutation:
            return found
        _require_under_way(found, mutation)
        return found.done(now)

    record = task.records.change(done)
    # Consumers may have come to the old segments until now, and find the new ones from here on.
    old = [record.segments[number] for number in mutation.segments]
    new = [one for one in record.segments.values() if {*one.parent_ids} == {*mutation.segments}]
    require_places(task, new, sorted(_subscriptions(task, old)))
    return publish(task)


def _begun(found: ControlledLayout, mutation: Mutation) -> ControlledLayout:
    if found.deleting:
        raise StoreConflict("the topic is being deleted")
    try:
        return found.begun(mutation)
    except LayoutError as error:
        raise StoreConflict(f"{mutation} is not possible: {error}") from error


def _is_begun(found: ControlledLayout, mutation: Mutation) -> bool:
    return mutation in (found.pending, found.last)


def _under_way(task: ControllerTask, mutation: Mutation) -> ControlledLayout:
    record = task.records.read()
    if record is None:
        raise StoreConflict(f"{task.name} has no layout: somebody has deleted it")
    if record.last != mutation:
        _require_under_way(record, mutation)
    return record


def _require_under_way(found: ControlledLayout, mutation: Mutation) -> None:
    if found.pending != mutation:
        raise StoreConflict(f"the {mutation} is not under way; the layout is at epoch {found.epoch}")


def _subscriptions(task: ControllerTask, segments: list[SegmentInfo]) -> set[str]:
    """Those that are registered, and those that only their consumers have made."""
    found = {*task.records.subscriptions()}
    for segment in segments:
        found.update(places(task.admin, segment_topic(task.name, segment.descriptor)))
    return found
