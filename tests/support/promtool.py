"""`promtool`, which evaluates rules of Prometheus on series that tests write."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsar_devstack.servers.cache import cache_folder


def require_promtool() -> str:
    """Return the program; skip the test where it is missing."""
    built = cache_folder() / "bin/promtool"
    program = shutil.which("promtool") or (str(built) if built.exists() else "")
    if not program:
        pytest.skip("promtool is missing, which evaluates the rules of Prometheus: `make promtool` builds it with Go")
    return program


def run_promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `promtool` in a folder."""
    return subprocess.run(
        [require_promtool(), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def firing_alerts(folder: Path, rules: dict[str, Any], series: dict[str, list[float | None]], minute: int) -> set[str]:
    """Return the alerts that fire at a minute, as Prometheus evaluates the rules once a minute.

    Args:
        folder: for the files of `promtool`.
        rules: `spec` of the PrometheusRule.
        series: values of each series by minute; None for no sample.
        minute: of the evaluation.
    """
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    inputs = [
        {"series": name, "values": " ".join("_" if value is None else repr(float(value)) for value in values)}
        for name, values in series.items()
    ]
    # An alert that fires is a failure of a test that expects none.
    quiet: list[dict[str, Any]] = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in names]
    test: dict[str, Any] = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": quiet}],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    tested = run_promtool("test", "rules", "test.yaml", cwd=folder)
    output = tested.stdout + tested.stderr
    firing = {*re.findall(r"alertname: (\w+),", output)}
    assert bool(firing) is bool(tested.returncode), output
    return firing
