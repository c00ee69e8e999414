"""Namespaces of blue, and the selection of those that move."""

from __future__ import annotations

import re

from activities.blue_green.context import AnyBlueGreenTask, BlueGreenTask
from activities.lifecycle.failed_items import FAILED_ITEMS, record_failed_items
from activities.lifecycle.step import step
from clients.pulsar.admin.client import PulsarAdminReader
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import FailedItem
from models.lifecycle.waves import Page, WaveItem

# Of the load manager and of transactions; and of each broker, for its health checks.
_OF_BROKERS = re.compile(r"pulsar/system|(?:pulsar|sla-monitor)/(?:[^/]+/)?[^/]+:\d+")


def namespaces_of(admin: PulsarAdminReader) -> list[str]:
    """Return all namespaces of a cluster, `tenant/namespace`, sorted."""
    return sorted(name for tenant in admin.tenants.names() for name in admin.namespaces.names(tenant))


def is_v1(namespace: str) -> bool:
    """Return whether a namespace has a name of Pulsar 1: `tenant/cluster/namespace`. Releases up to 4.1 allow them."""
    return namespace.count("/") > 1


def is_of_brokers(namespace: str) -> bool:
    """Return whether a namespace belongs to brokers; they do not move its topics with the flag of the cluster."""
    return _OF_BROKERS.fullmatch(namespace) is not None


def scalable_topics(task: AnyBlueGreenTask, namespace: str) -> list[str]:
    """Return the scalable topics of a namespace of blue; its flag does not move them."""
    return task.blue.scalable.scalable_topics.names(namespace) if task.blue.scalable else []


def selected(admin: PulsarAdminReader, input: BlueGreenInput) -> list[str]:
    """Return the namespaces that move, in the order of their patterns, then by name."""
    ranked = [(rank, name) for name in namespaces_of(admin) if (rank := input.rank(name)) is not None]
    return [name for _, name in sorted(ranked)]


@step(BlueGreenTask, name="list_namespaces", reads_only=True)
def page(task: BlueGreenTask, cursor: str, limit: int) -> Page:
    """Return the namespaces after a cursor. A new namespace that sorts before it is reported by COMPLETE."""
    names = selected(task.blue.admin, task.input)
    ranks = [(task.input.rank(name), name) for name in names]
    after = [name for rank, name in ranks if not cursor or (rank, name) > (task.input.rank(cursor), cursor)]
    items = tuple(WaveItem(name=name) for name in after[:limit])
    return Page(items=items, total=len(names), hold=task.runtime.stopped_because)


@step(BlueGreenTask)
def record_failures(task: BlueGreenTask, failures: list[FailedItem], offset: int) -> str:
    """Store failed namespaces in blue's metadata store, a node for each call; return the path."""
    with task.blue.store() as store:
        task.keeper(store).renew()
        record_failed_items(store, failures, offset)
    return f"{FAILED_ITEMS} of {task.input.blue.metadata_url}"
