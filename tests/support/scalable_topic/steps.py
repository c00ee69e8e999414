"""Steps of the migration of one topic without a workflow, and steps that freeze."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.pulsar.namespace_guard import RecordGuard
from activities.scalable_topic.context import Owners, TopicTask
from activities.scalable_topic.conversion.topic import conversion_of
from clients.cas.store import Check
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.names import TopicName
from models.lifecycle.claim import Attempt, Claim
from models.lifecycle.execution import Execution, InputT
from models.scalable_topic.input import ScalableTopicInput
from models.settings import Settings
from models.store_url import StoreUrl
from pulsar_devstack.servers.stack import Stack

ResultT = TypeVar("ResultT")

_EPOCHS = itertools.count(int(time.time() * 1000))
_LIMIT = 120.0


def execution_of(input: InputT, attempt: Attempt) -> Execution[InputT]:
    """Return the execution of an attempt."""
    started = datetime.fromtimestamp(attempt.started_ms / 1000, UTC)
    return Execution(input=input, run_id=attempt.run_id, started=started, epoch=attempt.epoch)


class _RunningRuns(Owners):
    """Owners that report the runs that a test names as running."""

    def __init__(self, running: set[str]) -> None:
        self._running = running

    def is_open(self, claim: Claim, url: StoreUrl) -> bool:
        return claim.run_id in self._running


class TopicSteps:
    """One run of the migration of a topic; a test calls its steps.

    Args:
        stack: the cluster.
        topic: the regular topic.
        run_id: of the run.
        fields: more fields of the input.

    Attributes:
        running: ids of the running runs.
    """

    def __init__(self, stack: Stack, topic: TopicName, run_id: str = "run-1", **fields: object) -> None:
        given = {
            "cluster": stack.state.spec.cluster,
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topic": str(topic),
        }
        self.input = ScalableTopicInput.model_validate({**given, **fields})
        self.running = {run_id}
        self._run_id, self._started = run_id, next(_EPOCHS)
        # No step asks for Temporal's client.
        self._runtime = Runtime(Settings(), cast("Any", None), "queue")

    def attempt(self) -> Attempt:
        """Return the next attempt."""
        return Attempt(self.input.workflow_id, self._run_id, self._started, next(_EPOCHS), 1)

    @contextmanager
    def task(self, attempt: Attempt | None = None) -> Generator[TopicTask]:
        """Yield the task of a step."""
        attempt = attempt or self.attempt()
        execution = execution_of(self.input, attempt)
        with TopicTask(self._runtime, execution, attempt, ActivityContext()) as task:
            task.owners = _RunningRuns(self.running)
            yield task

    def run(self, step: Callable[[TopicTask], ResultT], attempt: Attempt | None = None) -> ResultT:
        """Run a step."""
        with self.task(attempt) as task:
            return step(task)


class FrozenStep:
    """A step that freezes right after one of its checks of the fence, and continues on request.

    Args:
        steps: of the run.
        step: the step.
        at: number of the check after which it freezes, from 1.
        patch: undone at the end of the test.
    """

    def __init__(
        self, steps: TopicSteps, step: Callable[[TopicTask], object], at: int, patch: pytest.MonkeyPatch
    ) -> None:
        self._attempt = steps.attempt()
        self._at = at
        self._checks = 0
        self._frozen, self._thawed = threading.Event(), threading.Event()
        self._counting = threading.Lock()
        self._watch(patch)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="late")
        self._ended: Future[object] = self._pool.submit(steps.run, step, self._attempt)

    def freezes(self) -> bool:
        """Wait until the step is frozen; return false if it ended with fewer checks.

        Raises:
            AssertionError: it neither froze nor ended in time.
        """
        deadline = time.monotonic() + _LIMIT
        while not self._frozen.wait(0.05):
            if self._ended.done():
                self._ended.result()
                return False
            assert time.monotonic() < deadline, "it neither froze nor ended"
        return True

    def resume(self) -> BaseException | None:
        """Resume the step, and wait for its end; return its error."""
        self._thawed.set()
        error = self._ended.exception(_LIMIT)
        self._pool.shutdown()
        return error

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        require, check = RecordGuard[Any].require, RecordGuard[Any].check

        def require_and_freeze(guard: RecordGuard[Any]) -> Claim:
            claim = require(guard)
            if claim.holder == self._attempt:
                self._count_check()
            return claim

        def check_and_freeze(guard: RecordGuard[Any]) -> Check:
            is_own, result = require(guard).holder == self._attempt, check(guard)
            if is_own:
                self._count_check()
            return result

        patch.setattr(RecordGuard, "require", require_and_freeze)
        patch.setattr(RecordGuard, "check", check_and_freeze)

    def _count_check(self) -> None:
        with self._counting:
            self._checks += 1
            freezes = self._checks == self._at
        if freezes:
            self._frozen.set()
            self._thawed.wait(_LIMIT)


def flip_refused(task: TopicTask) -> None:
    """Run a FLIP that sees no client, and whose broker refuses because of one."""
    with task.cluster.store() as store:
        guard = task.topic_guard(store, task.name)
        record = guard.take()
        with pytest.raises(AdminConflict):
            conversion_of(task, store, guard, task.name, record, stage=record.stage).run()
