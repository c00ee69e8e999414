"""Fixtures of the tests of this distribution: real servers from the repository's dev stack."""

from __future__ import annotations

import pytest
from hypothesis import settings

from pulsar_devstack.machine import export_java_home

export_java_home()
# No example fails because the machine is busy.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

pytest.register_assert_rewrite("tests.support", "scalable_client.tests.support")

pytest_plugins = ["tests.support.session", "tests.support.stacks"]
