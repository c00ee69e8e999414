"""Names of the topics of which a scalable topic consists: its segments, and the topic with its layout."""

from __future__ import annotations

import re

_INFIX = ".scalable."


def segment_topic(topic: str, descriptor: str) -> str:
    """Return the topic that contains the messages of a segment: `…/orders.scalable.0000-7fff-1`.

    Args:
        topic: full name of the scalable topic.
        descriptor: `{first hash}-{last hash}-{id}` of the segment (PIP-468, "Segment topics").
    """
    return f"{topic}{_INFIX}{descriptor}"


def layout_topic(topic: str) -> str:
    """Return the compacted topic in which clients see the layout and its changes: `…/orders.scalable.layout`."""
    return f"{topic}{_INFIX}layout"


_SEGMENT_OR_LAYOUT = re.compile(rf"(?P<topic>.+){re.escape(_INFIX)}(layout|[0-9a-f]{{4}}-[0-9a-f]{{4}}-\d+)", re.DOTALL)


def scalable_topic_of(name: str) -> str:
    """Return the scalable topic to which a segment or layout topic belongs, by its name; empty for other topics."""
    match = _SEGMENT_OR_LAYOUT.fullmatch(name)
    return match["topic"] if match else ""


# ZooKeeper allows no control characters, surrogates, private-use characters and specials in names of nodes.
_NODE = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]{1,200}")


def is_node_name(name: str) -> bool:
    """Return whether every metadata store allows a name for a node."""
    return _NODE.fullmatch(name) is not None and name not in (".", "..")
