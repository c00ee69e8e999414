"""Attempts that claim stores, without Temporal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from clients.cas.claims import ClaimKeeper
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.stores import Access, open_cas
from models.bookie_registry import REGISTRY, SwitchClaim
from models.lifecycle.claim import Attempt
from models.store_url import StoreUrl


def attempt_of(workflow_id: str = "switch/one", *, run: int = 1, epoch: int = 1, attempt: int = 1) -> Attempt:
    """Return an attempt; runs begin in the order of their numbers."""
    return Attempt(workflow_id, f"run-{run}", 1_000 * run, epoch, attempt)


@contextmanager
def open_registry(url: StoreUrl, me: Attempt) -> Generator[BookieRegistry]:
    """Open the registry of bookie clusters on behalf of an attempt, over a separate session."""
    with open_cas(url, Access()) as store:
        yield BookieRegistry(store, REGISTRY, ClaimKeeper(store, SwitchClaim, me))
