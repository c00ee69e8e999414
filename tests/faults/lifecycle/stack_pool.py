"""Fresh clusters for one test after another, each started while the tests look at the end of the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.ensemble import Ensemble
from tests.support.stacks import MakeStack


class Cluster(NamedTuple):
    """A cluster, and the hold on its ZooKeepers where there are three."""

    stack: Stack
    ensemble: Ensemble | None = None


def make_cluster(make: MakeStack, spec: StackSpec, *, ensemble: bool) -> Cluster:
    """Create a cluster of this spec, with three ZooKeepers on request."""
    if not ensemble:
        return Cluster(make(spec))
    held: list[Ensemble] = []
    # Followers give up a frozen leader after four seconds.
    more = {"zookeepers": 3, "zookeeper_settings": {**spec.zookeeper_settings, "syncLimit": "4"}}
    stack = make(spec.model_copy(update=more), lambda stack: held.append(Ensemble(stack)))
    return Cluster(stack, held[0])


class StackPool:
    """Fresh clusters.

    Args:
        make: starts one, on an ensemble of ZooKeepers or on one of them.
        wanted: of each test to come, whether its cluster is on an ensemble.
    """

    def __init__(self, make: Callable[[bool], Cluster], wanted: Iterable[bool]) -> None:
        self._make, self._wanted = make, list(wanted)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stacks")
        self._next: tuple[bool, Future[Cluster]] | None = None
        self._used: Cluster | None = None

    @property
    def current(self) -> Cluster:
        """The one that was taken last.

        Raises:
            AssertionError: none was.
        """
        assert self._used, "no cluster was taken"
        return self._used

    def prepare(self) -> None:
        """Begin to start the next one, if any more are wanted."""
        if self._wanted and not self._next:
            self._begin(self._wanted.pop(0))

    def take(self, *, ensemble: bool = False) -> Stack:
        """Return a fresh cluster, and end the previous one."""
        self.prepare()
        # One test may be run more often than was counted.
        if self._next is None or self._next[0] is not ensemble:
            self._drop_next()
            self._begin(ensemble)
        self._drop(self._used)
        assert self._next
        self._used, self._next = self._next[1].result(), None
        return self._used.stack

    def close(self) -> None:
        """End all."""
        self._drop_next()
        self._drop(self._used)
        self._thread.shutdown()

    def _begin(self, ensemble: bool) -> None:
        self._next = ensemble, self._thread.submit(self._make, ensemble)

    def _drop_next(self) -> None:
        if self._next and not self._next[1].exception():
            self._drop(self._next[1].result())
        self._next = None

    @staticmethod
    def _drop(cluster: Cluster | None) -> None:
        if cluster is None:
            return
        cluster.stack.down(graceful=False)
        if cluster.ensemble:
            cluster.ensemble.__exit__()
