"""Shared parts of the tests of all migrations."""
