"""A broker's admin interface, as far as the demo and tests need it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

NAMESPACE = "public/default"
_PARALLEL = 8
_names = itertools.count(random.randrange(1 << 30))


def topic_path(name: str) -> str:
    """tenant/namespace/topic of a topic's name; short names are of the namespace `public/default`."""
    path = name.removeprefix("persistent://")
    return path if "/" in path else f"{NAMESPACE}/{path}"


def topic_url(name: str) -> str:
    """The full name of a topic; short names are of the namespace `public/default`."""
    return f"persistent://{topic_path(name)}"


class Admin:
    """Calls to one broker. Topics may be given by short name, as tenant/namespace/topic or in full.

    Calls that return a `Response` leave it to the caller what a refusal means; all others raise `httpx.HTTPError`.

    Args:
        url: `http://host:port`.
        timeout: seconds for one answer.
    """

    def __init__(self, url: str, timeout: float = 30) -> None:
        self._http = httpx.Client(base_url=f"{url}/admin/v2", timeout=timeout, trust_env=False, follow_redirects=True)

    def create_all(self, names: Iterable[str], cluster: str) -> list[str]:
        """Create topics with their tenants and namespaces, as far as they are missing; returns full names."""
        paths = [topic_path(name) for name in names]
        for tenant in sorted({path.split("/")[0] for path in paths}):
            _made(self.create_tenant(tenant, cluster))
        for namespace in sorted({path.rpartition("/")[0] for path in paths}):
            _made(self._http.put(f"/namespaces/{namespace}"))
        with ThreadPoolExecutor(_PARALLEL) as pool:
            for answer in pool.map(self.create_topic, paths):
                _made(answer)
        return [topic_url(path) for path in paths]

    def create_topic(self, name: str, timeout: float | None = None) -> httpx.Response:
        """Create a topic without partitions, in a namespace that exists."""
        limit = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        return self._http.put(f"/persistent/{topic_path(name)}", timeout=limit)

    def create_partitioned(self, name: str, partitions: int) -> None:
        """Create a topic with so many partitions."""
        self._http.put(f"/persistent/{topic_path(name)}/partitions", json=partitions).raise_for_status()

    def partitions(self, name: str) -> int:
        """How many partitions a topic has; 0 where it is none of partitions."""
        return int(self._get(f"/persistent/{topic_path(name)}/partitions")["partitions"])

    def delete_topic(self, name: str) -> httpx.Response:
        """Delete a topic with its ledgers."""
        return self._http.delete(f"/persistent/{topic_path(name)}")

    def topics(self, namespace: str = NAMESPACE) -> set[str]:
        """Full names of the topics of tenant/namespace."""
        return set(self._get(f"/persistent/{namespace}"))

    def ledgers(self, name: str) -> set[int]:
        """Ids of the ledgers that hold a topic's messages and its cursors."""
        return set(self._ledgers(name))

    def ledger_counts(self, names: Iterable[str]) -> Counter[int]:
        """Every ledger id that topics and their cursors use, and how often."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return Counter(ledger for found in pool.map(self._ledgers, names) for ledger in found)

    def backlog(self, name: str, subscription: str) -> int:
        """How many messages a subscription has not acknowledged, counted exactly."""
        return self._subscription(name, subscription)["msgBacklog"]

    def delayed(self, name: str, subscription: str) -> int:
        """How many messages a subscription holds back until they are due."""
        return self._subscription(name, subscription)["msgDelayed"]

    def schemas(self, name: str) -> list[tuple[str, str]]:
        """Type and definition of each version of a topic's schema, oldest first."""
        answer = self._get(f"/schemas/{topic_path(name)}/schemas")
        versions = sorted(answer["getSchemaResponses"], key=lambda one: one["version"])
        return [(one["type"], one["data"]) for one in versions]

    def compact(self, name: str) -> None:
        """Start a compaction; it runs on its own."""
        self._http.put(f"/persistent/{topic_path(name)}/compaction").raise_for_status()

    def compaction(self, name: str) -> str:
        """How the last compaction stands: NOT_RUN, RUNNING, SUCCESS or ERROR."""
        return self._get(f"/persistent/{topic_path(name)}/compaction")["status"]

    def create_tenant(self, name: str, cluster: str) -> httpx.Response:
        """Create a tenant."""
        tenant = {"adminRoles": [], "allowedClusters": [cluster]}
        return self._http.put(f"/tenants/{name}", json=tenant)

    def delete_tenant(self, name: str) -> httpx.Response:
        """Delete a tenant without namespaces."""
        return self._http.delete(f"/tenants/{name}")

    def can_write(self, cluster: str) -> bool:
        """Whether writes of metadata succeed now: a tenant is created, and deleted.

        Pulsar 5.0.0-M1 blocks the deletion alone: what brokers write through a cache passes DualMetadataCache.
        """
        name = f"probe-{next(_names)}"
        try:
            return self.create_tenant(name, cluster).is_success and self.delete_tenant(name).is_success
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Free the connections."""
        self._http.close()

    def _ledgers(self, name: str) -> list[int]:
        stats = self._get(f"/persistent/{topic_path(name)}/internalStats")
        cursors = [cursor["cursorLedger"] for cursor in stats["cursors"].values()]
        return [int(ledger["ledgerId"]) for ledger in stats["ledgers"]] + [one for one in cursors if one >= 0]

    def _subscription(self, name: str, subscription: str) -> dict[str, int]:
        stats = self._get(f"/persistent/{topic_path(name)}/stats?getPreciseBacklog=true")
        return stats["subscriptions"][subscription]

    def _get(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()


def _made(answer: httpx.Response) -> None:
    # 409: it is there already.
    if answer.status_code != int(httpx.codes.CONFLICT):
        answer.raise_for_status()
