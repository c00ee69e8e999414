"""Shared parts of the tests of whole migrations: worker processes, traffic, readers of stores, the operator."""
