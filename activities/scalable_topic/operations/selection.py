"""Which topics an operation is about."""

from __future__ import annotations

from urllib.parse import unquote_plus

from activities.scalable_topic.operations.context import OperationTask
from clients.cas.store import CasReader
from clients.pulsar.names import TopicName
from models.lifecycle.patterns import matches

_TOPICS = "/topics"


def selected(task: OperationTask, store: CasReader) -> list[TopicName]:
    """All topics that are named, and those with a record that fit a pattern, in the order of their names."""
    input = task.input
    names = {one for one in input.topics if not input.is_pattern(one)}
    patterns = [one for one in input.topics if input.is_pattern(one)]
    if patterns:
        namespaces = [name for tenant in task.admin.tenants.names() for name in task.admin.namespaces.names(tenant)]
        found = task.each(namespaces, lambda namespace: _recorded(store, namespace))
        recorded = (name for each in found for name in each)
        names |= {name for name in recorded if any(matches(name, pattern) for pattern in patterns)}
    return [TopicName.parse(name) for name in sorted(names)]


def _recorded(store: CasReader, namespace: str) -> list[str]:
    """`tenant/namespace/topic` of all topics of a namespace that have a record, however it stands."""
    # As brokers name nodes: see `TopicName.scalable_path`.
    return [f"{namespace}/{unquote_plus(topic)}" for topic in store.children(f"{_TOPICS}/{namespace}")]
