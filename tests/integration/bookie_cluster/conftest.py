"""What tests of the bookie cluster migration share: a Spark session for activities that are called without a worker."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from spark.engine import SparkEngine


@pytest.fixture(scope="package")
def engine() -> Generator[SparkEngine]:
    """A local Spark session of two lanes in the process of the tests, which can have one at a time."""
    started = SparkEngine("local[2]")
    started.start()
    yield started
    started.stop()
