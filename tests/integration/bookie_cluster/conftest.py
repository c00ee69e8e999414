"""Fixtures of the tests of the bookie cluster migration: a Spark session for activities without a worker."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from spark.engine import SparkEngine


@pytest.fixture(scope="package")
def engine() -> Generator[SparkEngine]:
    """A local Spark session with two threads in the process of the tests; a process can have only one session."""
    started = SparkEngine("local[2]")
    started.start()
    yield started
    started.stop()
