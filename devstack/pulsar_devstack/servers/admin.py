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
    """Return the complete name of a topic; short names are in the namespace `public/default`."""
    return str(TopicName.parse(name))


def refusal(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Return the reason why the broker rejects a call; empty if it accepts the call.

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
    """Return whether the broker accepts a call.

    Raises:
        AdminError: there was no answer.
    """
    return not refusal(call, *args, **kwargs)


class StackAdmin(PulsarAdmin):
    """Calls to one broker. A context manager.

    Args:
        url: `http://host:port`.
        timeout: seconds for one answer.
        access: credentials and TLS settings, with a timeout of their own.
    """

    def __init__(self, url: str, timeout: float = 30, access: AdminAccess | None = None) -> None:
        super().__init__(HttpSession(access or AdminAccess(timeout=timeout), _PARALLEL), [url])

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
        """Return the ids of the ledgers of a topic's messages and cursors."""
        return set(self._ledgers(name))

    def ledger_counts(self, names: Iterable[str]) -> Counter[int]:
        """Count how often topics and their cursors use each ledger id."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return Counter(ledger for ledgers_of_topic in pool.map(self._ledgers, names) for ledger in ledgers_of_topic)

    def subscription(self, topic: str, name: str) -> SubscriptionStats:
        """Return the state of a topic's subscription, with its exact backlog."""
        return self.topics.stats(TopicName.parse(topic)).subscriptions[name]

    def create_tenant(self, name: str, cluster: str) -> None:
        """Create a tenant."""
        self.tenants.create(name, Tenant(allowed_clusters=(cluster,)))

    def can_write(self, cluster: str) -> bool:
        """Return whether metadata can be written now: create and delete a tenant.

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
