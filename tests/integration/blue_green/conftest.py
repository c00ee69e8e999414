"""Fixtures for tests of the blue-green migration: two clusters."""

pytest_plugins = ["tests.support.blue_green.environment"]
