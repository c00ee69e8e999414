"""The content of a namespace on either cluster: policies, topics, schemas, subscriptions and clients.

Five calls for each topic (four for one with partitions, and more for a partition that cannot be loaded), and one more
for each policy that a topic can have, where the topic has any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from activities.pulsar.topic_inventory import TopicInventory, TopicReader, is_system_topic, is_transaction_topic
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import BookieAffinity, Policies
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import NON_PERSISTENT
from clients.pulsar.names import TopicName

ResultT = TypeVar("ResultT")

_AT_ONCE = 8


@dataclass(frozen=True)
class NamespaceInventory:
    """A namespace of one cluster.

    Attributes:
        name: `tenant/namespace`.
        policies: all of them; permissions and properties are among them.
        topics: whole topics by name, without those that belong to brokers.
        affinity: the bookies that keep its messages, where it says so.
        transactions: topics in which brokers keep what transactions have done in it.
        beyond: partitions with higher numbers than their topics have partitions.
    """

    name: str
    policies: Policies
    topics: Mapping[TopicName, TopicInventory]
    affinity: BookieAffinity | None = None
    transactions: tuple[TopicName, ...] = ()
    beyond: tuple[TopicName, ...] = ()


def read_tenant(admin: PulsarAdminReader, name: str) -> Tenant | None:
    """Return a tenant's settings; None if there is no such tenant."""
    try:
        return admin.tenants.get(name)
    except AdminNotFound:
        return None


def read_namespace(
    admin: PulsarAdminReader,
    namespace: str,
    check: Callable[[], None] = lambda: None,
    *,
    only: Collection[TopicName] | None = None,
) -> NamespaceInventory | None:
    """Return the content of a namespace; this loads its topics.

    Topics that are deleted during the call are left out.

    Args:
        admin: of the cluster; needs eight connections.
        namespace: `tenant/namespace`.
        check: raises where the work must stop.
        only: whole topics that are read; None for all.

    Returns:
        None if there is no such namespace.

    Raises:
        AdminError: a broker does not answer.
    """
    try:
        policies, affinity = admin.namespaces.policies(namespace), admin.namespaces.bookie_affinity(namespace)
        listed = list(map(TopicName.parse, admin.topics.names(namespace, system=True)))
        whole = set(map(TopicName.parse, admin.topics.partitioned_names(namespace)))
        passing = set(map(TopicName.parse, admin.topics.partitioned_names(namespace, domain=NON_PERSISTENT)))
        passing_names = set(map(TopicName.parse, admin.topics.names(namespace, domain=NON_PERSISTENT)))
    except AdminNotFound:
        return None
    names = [name for name in listed if not is_system_topic(name)]
    if only is not None:
        names, whole = [name for name in names if name.whole in only], whole.intersection(only)
        passing.clear()
        passing_names.clear()
    reader = TopicReader(admin, check)
    plain = {name for name in names if name.whole not in whole}
    calls: list[Callable[[], TopicInventory | None]] = [
        *(_later(reader.partitioned, name) for name in sorted(whole) if not is_system_topic(name)),
        *(_later(reader.plain, name) for name in sorted(plain)),
        *(_later(reader.passing, name) for name in sorted(passing)),
        *(_later(reader.passing, name) for name in sorted(passing_names) if name.whole not in passing),
    ]
    topics = {topic.name: topic for topic in run_concurrently(calls) if topic is not None}
    beyond = [
        name for name in names if name.whole in topics and (name.partition or 0) >= topics[name.whole].partitions > 0
    ]
    return NamespaceInventory(
        namespace,
        policies,
        topics,
        affinity,
        tuple(sorted(name for name in listed if is_transaction_topic(name))),
        tuple(sorted(beyond)),
    )


def _later(read: Callable[[TopicName], TopicInventory | None], name: TopicName) -> Callable[[], TopicInventory | None]:
    return lambda: read(name)


def run_concurrently(calls: Iterable[Callable[[], ResultT]]) -> list[ResultT]:
    """Run the calls, eight at once; return their results in the same order.

    Raises:
        Exception: of the first call that failed; calls that have not started are skipped.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="inventory") as pool:
        futures = [pool.submit(call) for call in calls]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
