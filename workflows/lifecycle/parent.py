"""The identity of a migration that its child workflows get."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from models.lifecycle.claim import ParentRun
from models.lifecycle.state import MigrationState


def this_run(state: MigrationState[Any, Any, Any]) -> ParentRun:
    """Return the migration that runs here, as its children name it.

    Args:
        state: of the migration.
    """
    info = workflow.info()
    return ParentRun(
        workflow_id=info.workflow_id,
        run_id=info.first_execution_run_id,
        started=state.started or info.workflow_start_time,
    )
