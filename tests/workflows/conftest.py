"""One test server and one pair of workers for the whole tier, and how many random walks are played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from temporalio.api.testservice.v1 import UnlockTimeSkippingRequest
from temporalio.client import Client

from pulsar_devstack.servers.provision import Toolchain
from temporal.client import connect
from tests.support.stacks import MakeStack, toolchain
from tests.workflows.lifecycle.harness import Harness, harness, on_dev_server

__all__ = ["toolchain"]

_LOCKS = 5
"""So many activities and tasks of runs that ended in a test may have left the clock locked."""

# A walk takes as long as its moves: its duration is not an error.
_SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("sample", _SLOW, max_examples=20, derandomize=True, database=None)
settings.register_profile(
    "explore", _SLOW, max_examples=int(os.environ.get("EXAMPLES", "200")), derandomize=False, print_blob=True
)
# `--hypothesis-profile=explore` is obeyed after this.
settings.load_profile("sample")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(toolchain: Toolchain) -> AsyncIterator[Harness]:
    """Starts migrations on the time-skipping server."""
    async with harness(toolchain.test_server) as ready:
        yield ready


@pytest.fixture(scope="module")
async def server(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Starts migrations on Temporal's dev server, which skips no time.

    Rounds that continue as new runs need it. The time-skipping server loses the end of some of those runs (seen under
    load, one of fifty); who waits for them waits forever, and no more time is skipped.
    """
    async with on_dev_server(make_stack) as ready:
        yield ready


@pytest.fixture
async def command(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client of a command, which sends the name of its user."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", stage.client.service_client.config.target_host)
    return await connect()


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _time_passes(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """No test leaves the server's clock locked: those after it would wait for each timer as long as it takes."""
    yield
    stage = request.getfixturevalue("stage") if "stage" in request.fixturenames else None
    if not isinstance(stage, Harness) or not stage.env.supports_time_skipping:
        return
    for _ in range(_LOCKS):
        # Twice: a sleep that took too long continues at the server, and time may pass for the next one through it only.
        if await _skips_time(stage) and await _skips_time(stage):
            return
        # The server locks its clock while an activity or a task runs, and never unlocks it if the run ends during that.
        await stage.client.test_service.unlock_time_skipping(UnlockTimeSkippingRequest())
    assert await _skips_time(stage), "a running activity, or many of runs that have ended, lock the server's clock"


async def _skips_time(stage: Harness) -> bool:
    try:
        async with asyncio.timeout(20):
            await stage.env.sleep(timedelta(minutes=1))
    except TimeoutError:
        return False
    return True
