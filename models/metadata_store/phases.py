"""Phases of the metadata store migration (PIP-454)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phases of PIP-454, with those that we put before and between them."""

    PRECHECK = "PRECHECK"
    PRE_COPY = "PRE_COPY"
    CATCH_UP = "CATCH_UP"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    VERIFY = "VERIFY"
    COMPLETED = "COMPLETED"
    VALIDATION = "VALIDATION"
    CLEANUP = "CLEANUP"
    FAILED = "FAILED"
