"""Names that all migrations share: search attributes, queue, metrics."""

from __future__ import annotations

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start."""


TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


def observers_queue(task_queue: str) -> str:
    """The queue of steps that look for as long as nothing changes; each worker of a task queue serves it too."""
    return f"{task_queue}-observers"


BLOCKED_GAUGE = "pulsar_migrate_blocked_seconds"
"""Gauge of the time for which a migration blocked metadata writes, or has blocked them so far."""

BROKERS_AWAY_GAUGE = "pulsar_migrate_brokers_away_seconds"
"""Gauge of the time for which no broker ran."""

BACKLOG_GAUGE = "pulsar_migrate_backlog_messages"
"""Gauge of the messages that subscriptions have left on a `side`, of what is on its way to the other one now."""

PUBLISHERS_GAUGE = "pulsar_migrate_publishers"
"""Gauge of the producers that are connected to a `side`, likewise."""

PROGRESS_GAUGES = "pulsar_migrate_progress_"
"""Gauges of what a running activity has done, one for each unit: `pulsar_migrate_progress_records` and so on."""

PROGRESS_RATIO_GAUGE = "pulsar_migrate_progress_ratio"
"""Gauge of the done part of what a running activity counts, 0 to 1."""
