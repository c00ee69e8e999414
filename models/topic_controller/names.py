"""Names of the topics that make a scalable one: its segments, and the one in which its layout is published."""

from __future__ import annotations

_OURS = ".scalable."


def segment_topic(topic: str, descriptor: str) -> str:
    """The topic that holds the messages of a segment: `…/orders.scalable.0000-7fff-1`.

    Args:
        topic: the scalable one, in full.
        descriptor: `{first hash}-{last hash}-{id}` of the segment (PIP-468, "Segment topics").
    """
    return f"{topic}{_OURS}{descriptor}"


def layout_topic(topic: str) -> str:
    """The compacted topic in which clients see the layout and each change of it: `…/orders.scalable.layout`."""
    return f"{topic}{_OURS}layout"
