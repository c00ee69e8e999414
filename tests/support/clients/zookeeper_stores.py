"""Fixtures for tests on a real ZooKeeper: servers, and stores of one's own in them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.spec import StackSpec

if TYPE_CHECKING:
    from tests.support.stacks import SharedStack


_SPEC = StackSpec(zookeepers=1, second_zookeepers=1)


@pytest.fixture(scope="session")
def server(shared_stack: SharedStack) -> Server:
    """A server that tests leave alone."""
    return shared_stack(_SPEC)["zookeeper-1"]


@pytest.fixture(scope="session")
def victim(shared_stack: SharedStack) -> Server:
    """A server that tests may hurt; it runs again when a test ends."""
    return shared_stack(_SPEC)["second-zookeeper-1"]


@pytest.fixture(scope="session")
def kazoo(server: Server) -> Iterator[Any]:
    """Another client on the whole server, to compare with; its calls have no types."""
    client = KazooClient(server.address)
    client.start()
    yield client
    client.stop()


@pytest.fixture
def new_url(server: Server) -> Callable[[], StoreUrl]:
    """Addresses of stores of one's own: chroots of one server that do not exist yet."""
    numbers = itertools.count(random.randrange(1 << 40))
    return lambda: parse_store_url(f"zk:{server.address}/stores/{next(numbers)}")


@pytest.fixture
def url(new_url: Callable[[], StoreUrl]) -> StoreUrl:
    """A store of one's own."""
    return new_url()
