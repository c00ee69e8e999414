"""What all tiers share: real servers, and an exit code that is the tests' own."""

from __future__ import annotations

import pytest

from pulsar_devstack.machine import export_java_home
from spark.environment import preset_spark_env

# Tests run Temporal's core in the process that starts Spark.
preset_spark_env()
export_java_home()

# What a round of faults asserts stands in modules without tests of their own: a failure must show its values.
pytest.register_assert_rewrite("tests.support", "tests.faults")

pytest_plugins = ["tests.support.session", "tests.support.stacks"]
