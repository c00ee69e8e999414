"""Expected assignments of segments to consumers, derived from the rule of PIP-468, and not from the code under test."""

from __future__ import annotations

from collections.abc import Collection

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

AssignedIds = dict[str, tuple[int, ...]]
"""Ids of segments, by consumer."""


def assignment_faults(
    layout: SegmentLayout, assigned: AssignedIds, here: Collection[str], away: Collection[str]
) -> list[str]:
    """Return the differences from the expected assignment, once no change is under way.

    Active segments go round by their hashes, among consumers by their names. While a consumer is away, a sealed segment
    may have messages left: it stays with the consumer of its first child, and all of its children may wait for it.

    Args:
        layout: of the topic.
        assigned: segments that consumers read, by consumer.
        here: consumers that are connected.
        away: those that died, and have their session still.
    """
    names = sorted({*here, *away})
    if sorted(assigned) != names:
        return [f"sessions are {sorted(assigned)}, and must be {names}"]
    if not names:
        return []
    faults, holders = shared(assigned), {number: name for name, ids in assigned.items() for number in ids}
    active = sorted(
        (segment for segment in layout.segments.values() if segment.active),
        key=lambda segment: segment.hash_range.start,
    )
    owners = {segment.segment_id: names[turn % len(names)] for turn, segment in enumerate(active)}
    waiting = {
        segment.segment_id for segment in active if away and not holders.keys().isdisjoint(_before(layout, segment))
    }
    for number, owner in owners.items():
        holder = holders.get(number)
        if holder != owner and (holder or number not in waiting):
            faults.append(f"segment {number} is {holder}'s, and must be {owner}'s")
    for number in holders.keys() - owners.keys():
        first = layout.segments[number].hash_range.start
        (heir,) = (
            segment.segment_id for segment in active if segment.hash_range.start <= first <= segment.hash_range.end
        )
        if not away or owners[heir] != holders[number]:
            faults.append(f"sealed segment {number} is {holders[number]}'s, and becomes {owners[heir]}'s")
    return faults


def shared(assigned: AssignedIds) -> list[str]:
    """Return the segments that two consumers have."""
    holders: dict[int, list[str]] = {}
    for name, ids in assigned.items():
        for number in ids:
            holders.setdefault(number, []).append(name)
    return [f"segment {number} is {' and '.join(names)}'s" for number, names in holders.items() if len(names) > 1]


def differences(what: str, actual: AssignedIds, expected: AssignedIds) -> list[str]:
    """Return the consumers whose segments differ from the expected ones."""
    names = sorted({*actual} | {*expected})
    return [
        f"{what} {actual.get(name)} of {name}, and not {expected.get(name)}"
        for name in names
        if actual.get(name) != expected.get(name)
    ]


def _before(layout: SegmentLayout, segment: SegmentInfo) -> set[int]:
    ancestors, remaining = set[int](), [*segment.parent_ids]
    while remaining:
        number = remaining.pop()
        ancestors.add(number)
        remaining += layout.segments[number].parent_ids if number in layout.segments else ()
    return ancestors
