"""A place where migrations run: Temporal with one worker and an operator, shared by all modules of a session."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.devstack.stack import Stack
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess


@dataclass(frozen=True)
class Environment:
    """What carries out migrations of any cluster.

    Attributes:
        stack: holds Temporal alone.
        worker: serves its task queue.
        operator: starts and steers migrations.
    """

    stack: Stack
    worker: WorkerProcess
    operator: Operator
