"""Fixtures of tests of whole migrations: one Temporal with one worker for the session."""

from __future__ import annotations

from tests.support.lifecycle.environment import environment

__all__ = ["environment"]
