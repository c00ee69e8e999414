"""Clusters that inputs name, and that are never called."""

from __future__ import annotations

from typing import Any


def side(name: str) -> dict[str, Any]:
    """Return how a cluster is reached."""
    return {
        "metadata_url": f"zk:zk-{name}:2181/pulsar",
        "admin_urls": [f"http://broker-{name}:8080"],
        "service_url": f"http://broker-{name}:8080",
        "broker_service_url": f"pulsar://broker-{name}:6650",
    }
