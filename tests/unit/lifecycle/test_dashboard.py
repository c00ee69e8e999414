"""The dashboard shows what is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from models.lifecycle.names import (
    BACKLOG_GAUGE,
    BLOCKED_GAUGE,
    BROKERS_AWAY_GAUGE,
    PROGRESS_GAUGES,
    PROGRESS_RATIO_GAUGE,
    PUBLISHERS_GAUGE,
)
from models.lifecycle.status import ProgressUnit

ROOT = Path(__file__).parents[3]
OURS = {"kind", "cluster"}
#: Each gauge with the labels that it has in addition to Temporal's own.
LABELS = {
    "pulsar_migrate_phase": OURS | {"phase"},
    "pulsar_migrate_phase_seconds": OURS | {"phase"},
    BLOCKED_GAUGE: OURS,
    BROKERS_AWAY_GAUGE: OURS,
    BACKLOG_GAUGE: OURS | {"side", "activity_type"},
    PUBLISHERS_GAUGE: OURS | {"side", "activity_type"},
    PROGRESS_RATIO_GAUGE: OURS | {"task", "activity_type"},
    **{f"{PROGRESS_GAUGES}{unit}": OURS | {"task", "activity_type"} for unit in ProgressUnit},
}


def expressions() -> list[str]:
    """Return all queries of the dashboard for our gauges."""
    board = json.loads((ROOT / "deploy/grafana/pulsar-migrate.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [query for query in queries if "pulsar_migrate_" in query]


@pytest.mark.parametrize("expression", expressions())
def test_queries_name_gauges_and_labels_that_exist(expression: str) -> None:
    """A query asks for a gauge that is exported, and groups by labels that are set on it."""
    (name,) = re.findall(r"pulsar_migrate_\w+", expression)
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    filtered = re.findall(r"(\w+)=~", expression)
    assert {label.strip() for labels in grouped for label in labels.split(",")} | set(filtered) <= LABELS[name]


def test_documented_gauges() -> None:
    """Every gauge of the project is on the page about monitoring."""
    page = (ROOT / "docs/monitoring.md").read_text()
    units = {f"{PROGRESS_GAUGES}{unit}" for unit in ProgressUnit}
    assert [name for name in LABELS.keys() - units if f"`{name}" not in page] == []
    assert all(f"_{unit}" in page for unit in ProgressUnit)
