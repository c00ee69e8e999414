"""The catalog of migrations: what it names is there, and short commands stay short."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow

from activities.lifecycle.runtime import Runtime
from cli.migrations import commands_of
from models.lifecycle.input import MigrationInput
from models.settings import Settings
from worker import catalog
from worker.catalog import KINDS, Kind

ROOT = Path(__file__).parents[3]

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


@every_kind
def test_each_migration_is_in_every_layer(kind: Kind[Any]) -> None:
    """A migration has one name: its package or module has it in each layer, and so does its page."""
    tests = [f"tests.{tier}" for tier in ("unit", "workflows", "integration", "faults", "histories", "support")]
    layers = ["models", "workflows", "activities", "spark", "demos", "bench", *tests]
    assert [layer for layer in layers if find_spec(f"{layer}.{kind.package}") is None] == []
    assert (ROOT / kind.page).is_file()
    assert find_spec(kind.demo) is not None
    # Of its own, also where the package has several kinds.
    assert find_spec(f"tests.histories.{kind.package}.{kind.docs or 'paths'}") is not None


@every_kind
def test_the_workflow_is_registered(kind: Kind[Any]) -> None:
    """The type that a start names is registered."""
    assert kind.workflow in {
        workflow._Definition.must_from_class(workflow_class).name for workflow_class in catalog.workflows()
    }
    assert issubclass(kind.input, MigrationInput)


def test_activities_of_all_migrations_have_names_of_their_own() -> None:
    """A worker can register the activities of all migrations together."""
    runtime = object.__new__(Runtime)
    runtime.settings = Settings()
    names = [step.__temporal_activity_definition.name for step in catalog.activities(runtime)]  # pyright: ignore[reportFunctionMemberAccess]
    assert len(names) == len(set(names)) > 10


@every_kind
def test_commands_of_one_migration_explain_themselves(kind: Kind[Any]) -> None:
    """Each command that one migration adds has a help text."""
    assert all(inspect.getdoc(command) for command in commands_of(kind).values())


def test_a_short_command_imports_no_spark() -> None:
    """The command line starts without Spark and activities; `replay` and `worker` import them when run."""
    program = (
        "import sys, cli.app; print(*[name for name in sys.modules if {name, name.split('.')[0]} & {*sys.argv[1:]}])"
    )
    heavy = ["pyspark", "activities", "spark", "kazoo", "pulsar_devstack.cli"]
    process = subprocess.run(
        [sys.executable, "-c", program, *heavy], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []
