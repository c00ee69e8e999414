"""The dashboard asks for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.environments import ROOT
from tests.support.promtool import run_promtool
from tests.unit.page.test_alerts import LABELS

BOARD: dict[str, Any] = json.loads((ROOT / "deploy/helm/pulsar-migrate/files/dashboard.json").read_text())


def queries() -> list[tuple[str, str]]:
    """Return the expression and the legend of all queries of panels and annotations."""
    panels = [(target["expr"], target["legendFormat"]) for panel in BOARD["panels"] for target in panel["targets"]]
    notes = BOARD["annotations"]["list"]
    return [*panels, *((note["expr"], f"{note['titleFormat']} {note['textFormat']}") for note in notes)]


@pytest.mark.parametrize(("expression", "legend"), queries())
def test_queries_name_metrics_and_labels_that_exist(expression: str, legend: str) -> None:
    """A query asks for a metric of the collector or the gateway, and for labels that it has."""
    names = {*re.findall(r"pulsar_migrate_\w+", expression)}
    assert names <= set(LABELS)
    if not names:
        assert "temporal_" in expression
        return
    labels = set[str]().union(*(LABELS[name] for name in names))
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    used = [label.strip() for group in grouped for label in group.split(",")]
    used += re.findall(r"(\w+)(?:=~|!=|=)\"", expression)
    used += re.findall(r"{{(\w+)}}", legend)
    assert {*used} <= labels


def test_queries_are_valid(tmp_path: Path) -> None:
    """Prometheus accepts every query, with values for the variables of the dashboard."""
    rules = [
        {"record": f"query:{number}", "expr": re.sub(r"\$(kind|cluster)\b", ".*", expression)}
        for number, (expression, _) in enumerate(queries())
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = run_promtool("check", "rules", "rules.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_links_lead_to_the_page() -> None:
    """Each panel of migrations links to the page of the migration, at an address that the reader can set."""
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert {"datasource", "kind", "cluster", "page"} == names
    linked = [panel["title"] for panel in BOARD["panels"] if panel["fieldConfig"]["defaults"].get("links")]
    assert {"Phases", "Waits for an operator", "Alarms", "Progress"} <= {*linked}
    for panel in BOARD["panels"]:
        for link in panel["fieldConfig"]["defaults"].get("links", []):
            assert link["url"] == "${page}/migration/${__field.labels.workflow_id}"


def test_annotations() -> None:
    """Points of no return and ends are marked in all panels."""
    notes = {note["name"]: note for note in BOARD["annotations"]["list"]}
    assert "pulsar_migrate_point_of_no_return_passed" in notes["Point of no return"]["expr"]
    assert notes["Point of no return"]["iconColor"] == "red"
    assert "pulsar_migrate_outcome" in notes["End"]["expr"]


def test_phases_are_a_timeline() -> None:
    """The phases of each migration are a state timeline."""
    [phases] = [panel for panel in BOARD["panels"] if panel["type"] == "state-timeline"]
    assert [target["expr"].partition("{")[0] for target in phases["targets"]] == ["pulsar_migrate_phase"]
