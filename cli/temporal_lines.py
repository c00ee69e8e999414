"""The lines of Temporal's own CLI that our commands stand for."""

from __future__ import annotations

import json
import shlex
from typing import Any

from cli.inputs import input_json
from models.lifecycle.input import MigrationInput
from worker.catalog import Kind


def start_line(kind: Kind[Any], input: MigrationInput, queue: str) -> str:
    """`temporal workflow start …`, quoted for a POSIX shell."""
    attributes = {"MigrationKind": kind.name, "MigrationTarget": input.target_name}
    listed = [f"--search-attribute={name}={json.dumps(value)}" for name, value in attributes.items()]
    words = ["--type", kind.workflow, "--task-queue", queue, "--workflow-id", input.workflow_id]
    words += ["--fail-existing", "--static-summary", input.summary, *listed]
    return shlex.join(["temporal", "workflow", "start", *words, "--input", _json(input_json(input))])


def update_line(workflow_id: str, name: str, argument: Any) -> str:
    """`temporal workflow update execute …`."""
    words = ["--workflow-id", workflow_id, "--name", name, "--input", _json(argument)]
    return shlex.join(["temporal", "workflow", "update", "execute", *words])


def query_line(workflow_id: str, name: str = "status") -> str:
    """`temporal workflow query …`, by default for the status."""
    return shlex.join(["temporal", "workflow", "query", "--workflow-id", workflow_id, "--type", name])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
