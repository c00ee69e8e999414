"""The brokers' admin interface, as far as tests need it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import httpx

NAMESPACE = "public/default"
_names = itertools.count(random.randrange(1 << 30))


class Admin:
    """Calls to one broker.

    Args:
        url: `http://host:port`.
        timeout: seconds for one answer.
    """

    def __init__(self, url: str, timeout: float = 30) -> None:
        self._http = httpx.Client(base_url=f"{url}/admin/v2", timeout=timeout, trust_env=False, follow_redirects=True)

    def create_topic(self, name: str) -> httpx.Response:
        """Create a topic without partitions."""
        return self._http.put(f"/persistent/{NAMESPACE}/{name}")

    def delete_topic(self, name: str) -> httpx.Response:
        """Delete a topic with its ledgers."""
        return self._http.delete(f"/persistent/{NAMESPACE}/{name}")

    def topics(self) -> set[str]:
        """Short names of all topics of the namespace."""
        answer = self._http.get(f"/persistent/{NAMESPACE}").raise_for_status()
        return {name.rpartition("/")[2] for name in answer.json()}

    def ledgers(self, name: str) -> set[int]:
        """Ids of the ledgers that hold a topic's messages and its cursors."""
        answer = self._http.get(f"/persistent/{NAMESPACE}/{name}/internalStats").raise_for_status()
        stats: dict[str, Any] = answer.json()
        found = {int(ledger["ledgerId"]) for ledger in stats["ledgers"]}
        return found | {int(cursor["cursorLedger"]) for cursor in stats["cursors"].values()} - {-1}

    def create_tenant(self, name: str, cluster: str) -> httpx.Response:
        """Create a tenant."""
        tenant = {"adminRoles": [], "allowedClusters": [cluster]}
        return self._http.put(f"/tenants/{name}", json=tenant)

    def delete_tenant(self, name: str) -> httpx.Response:
        """Delete a tenant without namespaces."""
        return self._http.delete(f"/tenants/{name}")

    def tenants(self) -> set[str]:
        """Names of all tenants."""
        return set(self._http.get("/tenants").raise_for_status().json())

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
