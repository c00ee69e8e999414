"""Setup of all test tiers: real servers, and pytest's own exit code."""

from __future__ import annotations

import pytest

from models import redaction
from pulsar_devstack.machine import export_java_home
from spark.environment import preset_spark_env

# Tests run Temporal's core in the process that starts Spark.
preset_spark_env()
export_java_home()

# Rounds of faults have their assertions in modules without tests: a failure there must show its values.
pytest.register_assert_rewrite("tests.support", "tests.faults")

pytest_plugins = ["tests.support.session", "tests.support.stacks"]


@pytest.fixture(autouse=True)
def _forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test hides words that were secrets of another one."""
    monkeypatch.setattr(redaction, "REDACTOR", redaction.Redactor())
