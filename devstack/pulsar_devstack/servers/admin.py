"""The admin interface of a dev stack, for the demos, tests and benchmarks: topics by short names, many at once."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminError
from clients.pulsar.admin.http import HttpSession
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import SubscriptionStats
from clients.pulsar.names import TopicName

NAMESPACE = "public/default"
_PARALLEL = 8
P = ParamSpec("P")
_names = itertools.count(random.randrange(1 << 30))


def topic_url(name: str) -> str:
    """The full name of a topic; short names are of the namespace `public/default`."""
    return str(TopicName.parse(name))


def refusal(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Why the broker refuses a call; empty if it does not.

    Raises:
        AdminError: there was no answer.
    """
    try:
        call(*args, **kwargs)
    except AdminError as error:
        if error.status is None:
            raise
        return str(error)
    return ""


def accepts(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Whether the broker does not refuse a call.

    Raises:
        AdminError: there was no answer.
    """
    return not refusal(call, *args, **kwargs)


class StackAdmin(PulsarAdmin):
    """Calls to one broker. A context manager.

    Args:
        url: `http://host:port`.
        timeout: seconds for one answer.
    """

    def __init__(self, url: str, timeout: float = 30) -> None:
        super().__init__(HttpSession(AdminAccess(timeout=timeout), _PARALLEL), [url])

    def create_all(self, names: Iterable[str], cluster: str) -> list[str]:
        """Create topics with their tenants and namespaces, as far as they are missing; returns full names."""
        topics = [TopicName.parse(name) for name in names]
        for tenant in sorted({topic.tenant for topic in topics}):
            _make(self.create_tenant, tenant, cluster)
        for namespace in sorted({topic.namespace_path for topic in topics}):
            _make(self.namespaces.create, namespace)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(partial(_make, self.topics.create), topics))
        return [str(topic) for topic in topics]

    def create_topic(self, name: str, timeout: float | None = None) -> None:
        """Create a topic without partitions, in a namespace that exists."""
        self.topics.create(TopicName.parse(name), timeout=timeout)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its ledgers."""
        self.topics.delete(TopicName.parse(name))

    def ledgers(self, name: str) -> set[int]:
        """Ids of the ledgers that hold a topic's messages and its cursors."""
        return set(self._ledgers(name))

    def ledger_counts(self, names: Iterable[str]) -> Counter[int]:
        """Every ledger id that topics and their cursors use, and how often."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return Counter(ledger for found in pool.map(self._ledgers, names) for ledger in found)

    def subscription(self, topic: str, name: str) -> SubscriptionStats:
        """How a subscription of a topic is, its backlog counted exactly."""
        return self.topics.stats(TopicName.parse(topic)).subscriptions[name]

    def create_tenant(self, name: str, cluster: str) -> None:
        """Create a tenant."""
        self.tenants.create(name, Tenant(allowed_clusters=(cluster,)))

    def can_write(self, cluster: str) -> bool:
        """Whether writes of metadata succeed now: a tenant is created, and deleted.

        During a live metadata migration only the deletion is refused: writes through a cache are not.
        """
        name = f"probe-{next(_names)}"
        try:
            self.create_tenant(name, cluster)
            self.tenants.delete(name)
        except AdminError:
            return False
        return True

    def _ledgers(self, name: str) -> list[int]:
        stats = self.topics.internal_stats(TopicName.parse(name))
        cursors = [cursor.cursor_ledger for cursor in stats.cursors.values() if cursor.cursor_ledger >= 0]
        return [ledger.ledger_id for ledger in stats.ledgers] + cursors


def _make(create: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    with suppress(AdminConflict):
        create(*args, **kwargs)
