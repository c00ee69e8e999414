"""Names that all migrations share: search attributes, queue, metrics."""

from __future__ import annotations

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start."""


TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


BLOCKED_GAUGE = "pulsar_migrate_blocked_seconds"
"""Gauge of the time for which a migration blocked writes, or has blocked them so far."""
