"""Names that all migrations share: search attributes, task queue, metrics."""

from __future__ import annotations

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start."""


TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


def observers_queue(task_queue: str) -> str:
    """Return the queue of steps that wait for changes; each worker of a task queue also serves it."""
    return f"{task_queue}-observers"


BLOCKED_GAUGE = "pulsar_migrate_blocked_seconds"
"""Gauge of the time for which a migration has blocked metadata writes."""

BROKERS_AWAY_GAUGE = "pulsar_migrate_brokers_away_seconds"
"""Gauge of the time for which no broker ran."""

BACKLOG_GAUGE = "pulsar_migrate_backlog_messages"
"""Gauge of the backlog of subscriptions on a `side`, for topics that move now."""

PUBLISHERS_GAUGE = "pulsar_migrate_publishers"
"""Gauge of the producers that are connected to a `side`, for topics that move now."""

PROGRESS_GAUGES = "pulsar_migrate_progress_"
"""Prefix of the gauges of a running activity's progress, one for each unit: `pulsar_migrate_progress_records`."""

PROGRESS_RATIO_GAUGE = "pulsar_migrate_progress_ratio"
"""Gauge of a running activity's progress, 0 to 1."""
