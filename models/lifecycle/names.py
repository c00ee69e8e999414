"""Names that all migrations share: search attributes, queue, metrics."""

from __future__ import annotations

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start."""


TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


BLOCKED_GAUGE = "pulsar_migrate_blocked_seconds"
"""Gauge of the time for which a migration blocked metadata writes, or has blocked them so far."""

BROKERS_AWAY_GAUGE = "pulsar_migrate_brokers_away_seconds"
"""Gauge of the time for which no broker ran."""

PROGRESS_GAUGES = "pulsar_migrate_progress_"
"""Gauges of what a running activity has done, one for each unit: `pulsar_migrate_progress_records` and so on."""

PROGRESS_RATIO_GAUGE = "pulsar_migrate_progress_ratio"
"""Gauge of the done part of what a running activity counts, 0 to 1."""
