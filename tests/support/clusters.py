"""Fixtures of a module's cluster, which is its fixture `stack`."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.stores import Access, open_cas
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Its admin interface."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


@pytest.fixture(scope="module")
def store(stack: Stack) -> Generator[CasStore]:
    """Its metadata store."""
    with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        yield store
