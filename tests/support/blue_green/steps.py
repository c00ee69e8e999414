"""The steps of a blue-green migration by themselves, without a workflow around them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from activities.blue_green import cluster
from activities.blue_green.batch import drain, flip, load, quiesce
from activities.blue_green.context import AnyBlueGreenTask, BatchTask, BlueGreenTask, NamespaceGuard
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from clients.cas.store import CasStore
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from models.blue_green.batch import BatchInput
from models.blue_green.results import Quiet
from models.lifecycle.claim import Attempt, ParentRun
from models.lifecycle.execution import Execution, InputT
from models.settings import Settings
from tests.support.blue_green.environment import BLUE, Clusters

ResultT = TypeVar("ResultT")

_EPOCHS = itertools.count(int(time.time() * 1000))
_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Steps:
    """One migration of some namespaces, whose steps a test runs.

    Args:
        clusters: both.
        batch: the namespaces.
        fields: of the input.
    """

    def __init__(self, clusters: Clusters, *batch: str, run_id: str = "run-1", **fields: object) -> None:
        self.input = clusters.input(**{"namespaces": list(batch), **fields})
        self._batch = batch
        self._run_id, self._started = run_id, next(_EPOCHS)
        # No step asks for Temporal's client. Without it no step is repeated whose broker was busy for some seconds.
        settings = Settings(admin_timeout=timedelta(seconds=30))
        self._runtime = Runtime(settings, cast("Any", None), "queue")

    def attempt(self) -> Attempt:
        """Return the next attempt."""
        return Attempt(self.input.workflow_id, self._run_id, self._started, next(_EPOCHS), 1)

    @contextmanager
    def task(self, attempt: Attempt | None = None) -> Generator[BlueGreenTask]:
        """Yield the task of a step of the whole migration."""
        mine = attempt or self.attempt()
        with BlueGreenTask(self._runtime, _execution(self.input, mine), mine, ActivityContext()) as task:
            yield task

    def whole(self, step: Callable[[BlueGreenTask], ResultT]) -> ResultT:
        """Run a step of the whole migration."""
        with self.task() as task:
            return step(task)

    def batch(self, step: Callable[[BatchTask], ResultT], attempt: Attempt | None = None) -> ResultT:
        """Run a step of the batch, whose namespaces the attempt takes first."""
        mine = attempt or self.attempt()
        parent = ParentRun(workflow_id=mine.workflow_id, run_id=mine.run_id, started=_STARTED)
        # A test may set what no input may have.
        input = BatchInput.model_construct(**dict(self.input), parent=parent, batch=self._batch)
        with BatchTask(self._runtime, _execution(input, mine), mine, ActivityContext()) as task:
            assert task.guards
            return step(task)

    def begin(self) -> None:
        """Run the steps up to the flip, except for the quiet phase."""
        self.whole(cluster.register)
        self.whole(cluster.disable_load_shedding)
        self.batch(load.load)

    def quiesce(self) -> Quiet:
        """Bring green up to date, and hold writes back."""
        self.batch(quiesce.catch_up)
        return self.batch(quiesce.quiesce)

    def move(self) -> None:
        """Run all steps up to the end of DRAIN, after which blue has no messages."""
        self.begin()
        assert not self.quiesce().busy
        self.batch(flip.flip)
        assert self.batch(drain.drain).remaining == ()

    def finish(self) -> None:
        """Finish a successful migration: restore blue's settings, keep the flags."""
        self.input = self.input.model_copy(update={"complete_cluster": False})
        self.whole(cluster.complete)
        self.whole(cluster.finish)

    def end(self) -> None:
        """Give everything up that concerns both clusters as a whole; no attempt of this migration is under way."""
        self.whole(cluster.release)


def _execution(input: InputT, attempt: Attempt) -> Execution[InputT]:
    return Execution(input=input, run_id=attempt.run_id, started=_STARTED, epoch=attempt.epoch)


def take(task: AnyBlueGreenTask, store: CasStore, namespaces: Iterable[str]) -> Sequence[NamespaceGuard]:
    """Return the guards of namespaces, taken for the task's attempt."""
    guards = [NamespaceGuard(store, task.attempt, namespace) for namespace in namespaces]
    for guard in guards:
        guard.take()
    return guards


def make_namespace(clusters: Clusters, namespace: str, *topics: str) -> list[TopicName]:
    """Return a namespace on blue, of a tenant of its own, with topics without partitions."""
    tenant, name = namespace.split("/")
    admin = clusters.blue_admin
    if tenant not in admin.tenants.names():
        admin.tenants.create(tenant, Tenant(allowed_clusters=(BLUE,)))
    admin.namespaces.create(namespace, {"replication_clusters": [BLUE], "bundles": {"numBundles": 4}})
    names = [TopicName(tenant, name, topic) for topic in topics]
    for topic in names:
        admin.topics.create(topic)
    return names
