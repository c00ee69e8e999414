"""Operations on scalable topics without a workflow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.scalable_topic.context import Owners
from activities.scalable_topic.operations import run
from activities.scalable_topic.operations.context import OperationTask
from models.lifecycle.claim import Attempt, Claim
from models.scalable_topic.operation_input import Operation, ScalableOperationInput
from models.scalable_topic.operation_state import OperationCheck, OperationOutcome
from models.settings import Settings
from models.store_url import StoreUrl
from pulsar_devstack.servers.stack import Stack
from tests.support.scalable_topic.steps import execution_of

_EPOCHS = itertools.count(int(time.time() * 1000))


class _OthersEnded(Owners):
    """Owners that report all other runs as ended."""

    def __init__(self, me: Attempt) -> None:
        self._me = me

    def is_open(self, claim: Claim, url: StoreUrl) -> bool:
        return claim.is_of(self._me)


class Operations:
    """One run of an operation on topics; a test calls its steps.

    Args:
        stack: the cluster.
        operation: the operation.
        topics: names or patterns.
        run_id: of the run.
        fields: more fields of the input.
    """

    def __init__(
        self, stack: Stack, operation: Operation, *topics: str, run_id: str = "run-1", **fields: object
    ) -> None:
        given = {
            "cluster": stack.state.spec.cluster,
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topics": topics,
            "operation": operation,
        }
        self.input = ScalableOperationInput.model_validate({**given, **fields})
        self._run_id, self._started = run_id, next(_EPOCHS)
        # No step asks for Temporal's client.
        self._runtime = Runtime(Settings(), cast("Any", None), "queue")

    @contextmanager
    def task(self) -> Generator[OperationTask]:
        """Yield the task of the next attempt."""
        attempt = Attempt(self.input.workflow_id, self._run_id, self._started, next(_EPOCHS), 1)
        with OperationTask(self._runtime, execution_of(self.input, attempt), attempt, ActivityContext()) as task:
            task.owners = _OthersEnded(attempt)
            yield task

    def check(self) -> OperationCheck:
        """Run PRECHECK."""
        with self.task() as task:
            return run.check(task)

    def operate(self) -> OperationOutcome:
        """Run OPERATE only; if the run ends after it, the cluster stays claimed."""
        with self.task() as task:
            return run.operate(task)

    def complete(self) -> tuple[str, ...]:
        """Run COMPLETE; return notes about what could not be restored."""
        with self.task() as task:
            return run.complete(task).notes


def carried_out(
    stack: Stack, operation: Operation, *topics: str, run_id: str = "run-1", **fields: object
) -> OperationOutcome:
    """Run an operation with all its steps; return the outcome."""
    operations = Operations(stack, operation, *topics, run_id=run_id, **fields)
    outcome = operations.operate()
    assert operations.complete() == ()
    return outcome
