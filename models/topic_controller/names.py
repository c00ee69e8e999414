"""Names of the topics that make a scalable one: its segments, and the one in which its layout is published."""

from __future__ import annotations

import re

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


_PART = re.compile(rf"(?P<topic>.+){re.escape(_OURS)}(layout|[0-9a-f]{{4}}-[0-9a-f]{{4}}-\d+)", re.DOTALL)


def scalable_topic_of(name: str) -> str:
    """Return the scalable topic of which a topic has the name of a segment, or of the layout; empty for none."""
    found = _PART.fullmatch(name)
    return found["topic"] if found else ""


# ZooKeeper takes no control characters in names of nodes, no surrogates, nothing of the private area, and no specials.
_NODE = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]{1,200}")


def is_node_name(name: str) -> bool:
    """Whether every metadata store takes a name as that of a node."""
    return _NODE.fullmatch(name) is not None and name not in (".", "..")
