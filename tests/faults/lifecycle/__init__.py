"""Shared parts of the fault tests of all migrations."""
