"""Fixtures of the tests on clusters with TLS, logins and authorization on every link."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.hardened import HardenedEnvironment, hardened_environment
from tests.support.stacks import stack_maker


@pytest.fixture(scope="package")
def hardened(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[HardenedEnvironment]:
    """Two clusters and a worker, which all modules share."""
    with (
        stack_maker(toolchain, tmp_path_factory, request.session) as make,
        hardened_environment(make, toolchain, tmp_path_factory.mktemp("hardened")) as environment,
    ):
        yield environment
