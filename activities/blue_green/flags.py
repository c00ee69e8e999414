"""The flags of namespaces, as brokers see them once they were set in the metadata store."""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.blue_green.context import BlueGreenTask
from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader

LOOK_EVERY = 0.2
"""Seconds between two looks at brokers that have been told something."""
SEEN_WITHIN = 30.0
"""Seconds within which they have to know it."""


def wait_until_seen(
    task: BlueGreenTask, namespace: str, *, migrated: bool, by: Sequence[tuple[str, PulsarAdminReader]] | None = None
) -> None:
    """Wait until each broker sees a namespace's flag so.

    Args:
        task: the step.
        namespace: `tenant/namespace`.
        migrated: how they have to see it.
        by: the brokers; None for all of blue that the worker knows.

    Raises:
        StoreContention: one does not, for half a minute.
    """
    end = time.monotonic() + SEEN_WITHIN
    for url, admin in task.blue_brokers() if by is None else by:
        while admin.namespaces.policies(namespace).migrated is not migrated:
            if time.monotonic() > end:
                raise StoreContention(f"the broker {url} does not see the flag of {namespace} as it was set")
            task.context.pause(LOOK_EVERY)
