"""What tests of the migration to scalable topics share: one broker of Pulsar 5."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.stores import Access, open_cas
from deploy.devstack.stack import Stack, StackSpec
from models.store_url import parse_store_url
from tests.support.stacks import SharedStack


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """One broker."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1))


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
