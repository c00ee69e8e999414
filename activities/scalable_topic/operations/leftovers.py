"""What operations leave in the metadata store: notes of single topics, which whoever holds the cluster takes over."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.operations.freeze import thaw
from clients.cas.store import CasReader, CasStore
from clients.pulsar.names import TopicName
from models.scalable_topic.access import ClusterInput
from models.scalable_topic.operation_claims import OPERATIONS


def finish_operations(task: ClusterTask[ClusterInput], store: CasStore, *, own: bool) -> Iterator[str]:
    """Put policies of topics back that an operation held, and forget the topics.

    Args:
        task: of whoever holds the cluster.
        store: the brokers' metadata store.
        own: also those of this run, which has done what it was to do.

    Returns:
        What cannot be put back, or may be left by halves, in words.
    """
    for name in _recorded(store):
        guard = task.operation_guard(store, name)
        if (record := guard.read()) is None:
            continue
        if not record.is_of(task.attempt):
            task.take_over(record)
        elif not own:
            continue
        guard.take()
        yield from thaw(store, guard, name)
        if record.segments and record.outcome is None and not record.is_of(task.attempt):
            yield f"{name} was left by a run that had begun to change its segments; audit tells how it stands"
        guard.release()


def _recorded(store: CasReader) -> Iterator[TopicName]:
    for name in store.children(OPERATIONS):
        yield TopicName.parse(unquote(name))
