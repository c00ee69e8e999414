"""Fixtures of the tests of clients: three bookies, BookKeeper's own client, and a Spark session."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.engine import SparkEngine
from tests.support.clients.java_ledgers import JavaLedgers
from tests.support.clients.ledger_copies import clusters, environment, pair
from tests.support.stacks import SharedStack

__all__ = ["clusters", "environment", "pair"]

pytest_plugins = ["tests.support.clients.zookeeper_stores"]


@pytest.fixture(scope="session")
def three_bookies(shared_stack: SharedStack) -> Stack:
    """Three bookies; they all run again when a test ends, and none of its ledgers has another test's id."""
    return shared_stack(StackSpec(zookeepers=1, bookies=3))


@pytest.fixture(scope="session")
def java(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[JavaLedgers]:
    """BookKeeper's own client, for tests of the three bookies: it keeps searching for every cluster that it knew."""
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as client:
        yield client


@pytest.fixture(scope="package")
def engine() -> Generator[SparkEngine]:
    """A local Spark session with two threads in the process of the tests; a process can have only one session."""
    started = SparkEngine("local[2]")
    started.start()
    yield started
    started.stop()
