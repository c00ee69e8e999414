"""Who must read what: worked out from the rule as PIP-468 tells it, and not by what is tested."""

from __future__ import annotations

from collections.abc import Collection

from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

AssignedIds = dict[str, tuple[int, ...]]
"""Ids of segments, by consumer."""


def assignment_faults(
    layout: SegmentLayout, told: AssignedIds, here: Collection[str], away: Collection[str]
) -> list[str]:
    """What is wrong once all is at rest.

    Active segments go round by their hashes, among consumers by their names. While somebody is away, a sealed segment
    may have messages left: it stays with whoever gets the first of what it became, all of which may wait for it.

    Args:
        layout: of the topic.
        told: what consumers read.
        here: consumers that are connected.
        away: those that died, and have their session still.
    """
    names = sorted({*here, *away})
    if sorted(told) != names:
        return [f"sessions are {sorted(told)}, and must be {names}"]
    if not names:
        return []
    found, holders = shared(told), {number: name for name, ids in told.items() for number in ids}
    active = sorted(
        (segment for segment in layout.segments.values() if segment.active),
        key=lambda segment: segment.hash_range.start,
    )
    owners = {one.segment_id: names[turn % len(names)] for turn, one in enumerate(active)}
    waiting = {one.segment_id for one in active if away and not holders.keys().isdisjoint(_before(layout, one))}
    for number, owner in owners.items():
        holder = holders.get(number)
        if holder != owner and (holder or number not in waiting):
            found.append(f"segment {number} is {holder}'s, and must be {owner}'s")
    for number in holders.keys() - owners.keys():
        first = layout.segments[number].hash_range.start
        (heir,) = (one.segment_id for one in active if one.hash_range.start <= first <= one.hash_range.end)
        if not away or owners[heir] != holders[number]:
            found.append(f"sealed segment {number} is {holders[number]}'s, and becomes {owners[heir]}'s")
    return found


def shared(told: AssignedIds) -> list[str]:
    """Segments that two consumers have."""
    holders: dict[int, list[str]] = {}
    for name, ids in told.items():
        for number in ids:
            holders.setdefault(number, []).append(name)
    return [f"segment {number} is {' and '.join(names)}'s" for number, names in holders.items() if len(names) > 1]


def differences(what: str, found: AssignedIds, expected: AssignedIds) -> list[str]:
    """Consumers of whom somebody else says something else."""
    names = sorted({*found} | {*expected})
    return [
        f"{what} {found.get(name)} of {name}, and not {expected.get(name)}"
        for name in names
        if found.get(name) != expected.get(name)
    ]


def _before(layout: SegmentLayout, segment: SegmentInfo) -> set[int]:
    found, left = set[int](), [*segment.parent_ids]
    while left:
        number = left.pop()
        found.add(number)
        left += layout.segments[number].parent_ids if number in layout.segments else ()
    return found
