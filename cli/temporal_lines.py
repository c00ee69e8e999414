"""The lines of Temporal's own CLI that our commands stand for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from models.lifecycle.input import WorkflowInput
from worker.catalog import Registered


def start_line(kind: Registered, input: WorkflowInput, queue: str) -> str:
    """`temporal workflow start …`, quoted for a POSIX shell."""
    attributes = {"MigrationKind": kind.name, "MigrationTarget": input.target_name}
    listed = [f"--search-attribute={name}={json.dumps(value)}" for name, value in attributes.items()]
    words = ["--type", kind.workflow, "--task-queue", queue, "--workflow-id", input.workflow_id]
    words += ["--fail-existing", "--static-summary", input.summary, *listed]
    return shlex.join(["temporal", "workflow", "start", *words, "--input", _json(input.as_json())])


def update_line(workflow_id: str, name: str, *arguments: Any) -> str:
    """`temporal workflow update execute …`."""
    words = ["--workflow-id", workflow_id, "--name", name, *_given(arguments)]
    return shlex.join(["temporal", "workflow", "update", "execute", *words])


def query_line(workflow_id: str, name: str = "status", *arguments: Any) -> str:
    """`temporal workflow query …`, by default for the status."""
    words = ["--workflow-id", workflow_id, "--type", name, *_given(arguments)]
    return shlex.join(["temporal", "workflow", "query", *words])


def _given(arguments: Iterable[Any]) -> list[str]:
    return [word for one in arguments for word in ("--input", _json(one))]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
