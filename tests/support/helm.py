"""The objects that `helm template` makes of a chart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import HelmMissing, helm_program, template

Objects = dict[tuple[str, str], dict[str, Any]]
"""Objects by kind and name."""


def require_helm() -> str:
    """Return the program; skip the test where it is missing."""
    try:
        return helm_program()
    except HelmMissing as error:
        pytest.skip(str(error))


def try_render(values: dict[str, Any], folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Render a chart with values; the arguments are those of `deploy.manifests.template`.

    Args:
        values: of the chart.
        folder: for the file with the values.
        options: chart and release.
    """
    require_helm()
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    return template("--values", str(file), **options)


def render(values: dict[str, Any], folder: Path, **options: Any) -> Objects:
    """Return the objects of a chart; arguments as of `try_render`."""
    done = try_render(values, folder, **options)
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def by_name(text: str) -> Objects:
    """Return the objects of a manifest; a name is there once."""
    objects = [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]
    named = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(named) == len(objects)
    return named
