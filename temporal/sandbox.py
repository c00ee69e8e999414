"""The sandbox in which workflows run, in workers and in replays."""

from __future__ import annotations

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

_OWN = ("activities", "clients", "models", "spark", "temporal", "worker", "workflows")
_LIBRARIES = ("annotated_types", "opentelemetry", "pydantic", "pydantic_core")

# Else each run of each workflow would import these modules again, and keep them for as long as it is cached.
RESTRICTIONS = SandboxRestrictions.default.with_passthrough_modules(*_OWN, *_LIBRARIES)
"""Modules of the project are imported once for a process; none acts when it is imported."""

WORKFLOW_RUNNER = SandboxedWorkflowRunner(restrictions=RESTRICTIONS)
"""Of all workers and replays."""
