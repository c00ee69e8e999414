"""What tests of the controller share: two brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deploy.devstack.stack import Stack, StackSpec
from tests.support.clusters import admin, store
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import SharedStack
from tests.support.topic_controller.controllers import Controller

__all__ = ["admin", "store"]

Control = Callable[..., Controller]


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture
def control(environment: Environment, stack: Stack) -> Control:
    """Starts controllers of topics."""

    def control(topic: str, **more: object) -> Controller:
        return Controller.of(environment.operator, stack, topic, **more)

    return control
