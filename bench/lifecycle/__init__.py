"""Shared parts of the benchmarks of all migrations."""
