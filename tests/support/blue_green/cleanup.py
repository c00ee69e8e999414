"""The cleanup of a blue-green migration, as operators ask for it."""

from __future__ import annotations

from typing import Any

from models.lifecycle.report import Report
from models.lifecycle.status import Status
from models.lifecycle.verbs import Verb
from tests.support.lifecycle.operator import Run


def clean_up(run: Run, limit: float = 200) -> Report[Any, Any]:
    """Ask for the cleanup until it begins: refused before anybody has looked who asks blue. Then wait for its end."""

    def begun(status: Status) -> bool:
        if status.phase == "GRACE":
            run.signal(Verb.CLEANUP)
        return status.phase != "GRACE"

    run.wait_until("the cleanup", begun, limit)
    return run.result(limit)
