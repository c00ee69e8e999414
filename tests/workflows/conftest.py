"""One test server and one pair of workers for the whole tier."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from deploy.devstack.provision import Toolchain
from tests.support.stacks import toolchain
from tests.workflows.lifecycle.harness import Harness, harness

__all__ = ["toolchain"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(toolchain: Toolchain) -> AsyncIterator[Harness]:
    """Starts migrations on the time-skipping server."""
    async with harness(toolchain.test_server) as ready:
        yield ready
