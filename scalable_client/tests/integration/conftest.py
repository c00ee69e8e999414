"""Fixtures of the integration tests: one broker of Pulsar 5."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_scalable.native import NativeClient
from tests.support.clusters import store
from tests.support.lifecycle.environment import environment
from tests.support.stacks import SharedStack

__all__ = ["admin", "client", "environment", "stack", "store"]


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """One broker."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Admin interface of the broker."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


@pytest.fixture
def client(stack: Stack) -> Generator[NativeClient]:
    """A client of it."""
    with NativeClient(stack.broker_url) as client:
        yield client
