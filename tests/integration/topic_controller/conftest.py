"""What tests of the controller share: two brokers."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from clients.cas.store import CasStore
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.stores import Access, open_cas
from deploy.devstack.stack import Stack, StackSpec
from models.store_url import parse_store_url
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import SharedStack
from tests.support.topic_controller.controllers import Controller

Control = Callable[..., Controller]


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Generator[PulsarAdmin]:
    """Their admin interface."""
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        yield admin


@pytest.fixture(scope="module")
def store(stack: Stack) -> Generator[CasStore]:
    """Their metadata store."""
    with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
        yield store


@pytest.fixture
def control(environment: Environment, stack: Stack) -> Control:
    """Starts controllers of topics."""

    def control(topic: str, **more: object) -> Controller:
        return Controller.of(environment.operator, stack, topic, **more)

    return control
