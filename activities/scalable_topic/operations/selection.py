"""Which topics an operation is about."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from urllib.parse import unquote_plus

from clients.cas.store import CasReader
from clients.pulsar.names import TopicName
from models.scalable_topic.operation_input import ScalableOperationInput

_TOPICS = "/topics"


def selected(store: CasReader, input: ScalableOperationInput) -> list[TopicName]:
    """All topics that are named, and those with a record that fit a pattern, in the order of their names.

    Whoever asks brokers for the topics of a namespace is not told of empty records.
    """
    names = {one for one in input.topics if not input.is_pattern(one)}
    patterns = [one for one in input.topics if input.is_pattern(one)]
    if patterns:
        names |= {name for name in _recorded(store) if any(fnmatchcase(name, pattern) for pattern in patterns)}
    return [TopicName.parse(name) for name in sorted(names)]


def _recorded(store: CasReader) -> Iterator[str]:
    for tenant in store.children(_TOPICS):
        for namespace in store.children(f"{_TOPICS}/{tenant}"):
            for topic in store.children(f"{_TOPICS}/{tenant}/{namespace}"):
                # As brokers name nodes: see `TopicName.scalable_path`.
                yield f"{tenant}/{namespace}/{unquote_plus(topic)}"
