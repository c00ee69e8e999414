"""Fixtures of the controller's tests: two brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.clusters import admin, store
from tests.support.lifecycle.environment import Environment
from tests.support.releases import CHOSEN, stack_of
from tests.support.stacks import MakeStack, SharedStack
from tests.support.topic_controller.controllers import Controller

__all__ = ["admin", "store"]

Control = Callable[..., Controller]


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest, shared_stack: SharedStack, make_stack: MakeStack, toolchain: Toolchain
) -> Stack:
    """Two brokers of this run's release, or of the line that a module names (`with_sample`)."""
    spec = StackSpec(zookeepers=1, bookies=1, brokers=2)
    return stack_of(getattr(request, "param", CHOSEN), spec, shared_stack, make_stack, toolchain)


@pytest.fixture
def control(environment: Environment, stack: Stack) -> Control:
    """Starts controllers of topics."""

    def control(topic: str, **more: object) -> Controller:
        return Controller.of(environment.operator, stack, topic, **more)

    return control
