"""Typed clients of the systems that a migration talks to. Each call has a timeout."""
