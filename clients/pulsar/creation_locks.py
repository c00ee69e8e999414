"""The lock under which brokers create the scalable topic of a name, or make a regular topic scalable (5.0.1).

Each request has a node of its own, `<topic>:<uuid>`, which its broker's session holds, and continues only if it finds
no other of the topic; brokers look again right before they write the topic's record. So a node that stays keeps every
broker from it, also one that has had the request for long and was frozen. Regular topics are created without the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from clients.cas.store import CasReader, CasStore, Delete, retry
from clients.errors import StoreError
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import Fence, delete_fenced

_LOCKS = "/topic-creation-locks"
_OURS = "pulsar-migrate"


def bar_path(topic: TopicName) -> str:
    """Return the node that keeps brokers from creating the scalable topic of a name."""
    return f"{_LOCKS}/{topic.namespace_path}/{_prefix(topic)}{_OURS}"


def bar_creation(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> None:
    """Keep brokers from creating the scalable topic of a name; harmless when done twice.

    Requests that hold the lock already may still succeed: see `creation_locks`.

    Args:
        store: the brokers' metadata store.
        topic: of the name.
        fence: raises where another attempt is in charge.
    """
    path, mine = bar_path(topic), uuid4().hex.encode()

    def bar() -> None:
        node = store.get(path)
        fence()
        if node is None:
            store.create(path, mine)
        else:
            # An attempt that was late has made it, and removes what it finds unchanged.
            store.set(path, mine, node.version)

    retry(bar, path)
    try:
        fence()
    except StoreError:
        if (node := store.get(path)) and node.value == mine:
            store.delete(path, node.version)
        raise


def allow_creation(store: CasStore, topic: TopicName, fence: Fence) -> None:
    """Allow brokers to create the scalable topic of a name again; harmless if they may already."""
    path = bar_path(topic)

    def allow() -> None:
        if node := store.get(path):
            delete_fenced(store, [Delete(path, node.version)], fence)

    retry(allow, path)


def creation_locks(store: CasReader, topic: TopicName) -> list[str]:
    """Return the nodes of requests by which brokers are about to create the scalable topic of a name."""
    parent, mine = f"{_LOCKS}/{topic.namespace_path}", f"{_prefix(topic)}{_OURS}"
    return [f"{parent}/{name}" for name in store.children(parent) if name != mine and name.startswith(_prefix(topic))]


def _prefix(topic: TopicName) -> str:
    return f"{topic.scalable_path.rpartition('/')[2]}:"
