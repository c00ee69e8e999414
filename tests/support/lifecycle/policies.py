"""A namespace with policies of many kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from pulsar_devstack.servers.stack import Stack

PolicyRequest = tuple[str, str, Any]
"""Path after the namespace's, method and body."""

POLICIES: tuple[PolicyRequest, ...] = (
    ("/retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}),
    ("/persistence", "POST", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}),
    ("/dispatchRate", "POST", {"dispatchThrottlingRateInMsg": 1000, "ratePeriodInSecond": 1}),
    ("/autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
    ("/properties", "PUT", {"owner": "a"}),
    ("/antiAffinity", "POST", "group"),
    ("/permissions/app", "POST", ["produce"]),
    ("/schemaCompatibilityStrategy", "PUT", "FORWARD"),
    ("/offloadThreshold", "PUT", 1_000_000),
    ("/delayedDelivery", "POST", {"active": True, "tickTime": 1000}),
    ("/persistence/bookieAffinity", "POST", {"bookkeeperAffinityGroupPrimary": "racks"}),
)
"""Policies that each release takes, and that keep no client away."""


def make_namespace(stack: Stack, namespace: str, policies: Sequence[PolicyRequest]) -> None:
    """Create a namespace and set its policies; each answer must be a success."""
    base = f"{stack.admin_urls[0]}/admin/v2/namespaces/{namespace}"
    with httpx.Client(timeout=60, trust_env=False) as client:
        client.put(base).raise_for_status()
        for path, method, body in policies:
            client.request(method, f"{base}{path}", json=body).raise_for_status()
