"""Log lines of workflows: one for each phase, wait, verb and decision, and none during a replay."""

from __future__ import annotations

import logging

from temporalio import workflow


def log(event: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Write a line of this workflow.

    Args:
        event: one sentence.
        level: level of the line.
        fields: more fields of the line, such as `phase`.
    """
    # Claims and metrics have the first run too, which continue-as-new does not change.
    workflow.logger.log(level, event, extra={"run": workflow.info().first_execution_run_id, **fields})
