"""Lines of the log as a process writes them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from temporalio import activity, workflow

from process.logs import JsonLines

_LOGGERS = ("", "temporalio.workflow", "temporalio.activity")


class LogLines:
    """The lines that were written in JSON.

    Args:
        text: gets the lines.
    """

    def __init__(self, text: io.StringIO) -> None:
        self._text = text

    def of(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines that have these fields."""
        lines = map(json.loads, self._text.getvalue().splitlines())
        return [line for line in lines if fields.items() <= line.items()]


@contextmanager
def log_lines() -> Generator[LogLines]:
    """Write the log in JSON, also lines of level INFO; gives the lines."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    # As in a worker's process.
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False
    for logger in loggers:
        logger.setLevel(logging.INFO)
    try:
        yield LogLines(text)
    finally:
        loggers[0].removeHandler(handler)
        workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = True
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
