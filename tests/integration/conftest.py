"""What the tests of whole migrations share: one Temporal with one worker for the session."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pulsar_devstack.provision import Toolchain
from pulsar_devstack.stack import Stack, StackSpec
from tests.support.lifecycle.environment import Environment, Secrets
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess


@pytest.fixture(scope="session")
def environment(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[Environment]:
    """Where migrations run; it serves any number of clusters, so no test has to wait for Spark's start again."""
    folder = tmp_path_factory.mktemp("environment")
    secrets = Secrets(folder / "secrets")
    with (
        Stack(StackSpec(temporal=True), folder / "stack", toolchain) as stack,
        WorkerProcess(stack.temporal_address, folder, **secrets.settings()) as worker,
        Operator(stack.temporal_address) as operator,
    ):
        yield Environment(stack, worker, operator, secrets)
