"""The list of items that a migration in waves could not migrate, next to its claim in the metadata store."""

from __future__ import annotations

import json
from collections.abc import Iterable

from clients.cas.store import CasStore
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailedItem

FAILED_ITEMS = f"{CLAIM}-failed"
"""Parent node of the list; each child holds a part of it."""


def record_failed_items(store: CasStore, failures: Iterable[FailedItem], offset: int) -> None:
    """Write a part of the list; a later attempt may write the same offset again, and replaces the part.

    Args:
        store: the metadata store of the migration's claim.
        failures: the items, each with its reason.
        offset: number of items in all earlier parts.
    """
    path = f"{FAILED_ITEMS}/{offset:09d}"
    value = json.dumps([failure.model_dump(mode="json") for failure in failures]).encode()
    node = store.get(path)
    if node is None:
        store.create(path, value)
    elif node.value != value:
        store.set(path, value, node.version)


def forget_failed_items(store: CasStore) -> None:
    """Remove the list of an earlier run."""
    for name in store.children(FAILED_ITEMS):
        if node := store.get(f"{FAILED_ITEMS}/{name}"):
            store.delete(f"{FAILED_ITEMS}/{name}", node.version)
