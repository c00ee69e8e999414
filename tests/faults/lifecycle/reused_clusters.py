"""Clusters that many rounds use one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar


class Reused(Protocol):
    """Clusters that many rounds use; a context manager.

    Attributes:
        rounds: how many have.
    """

    rounds: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


ReusedT = TypeVar("ReusedT", bound=Reused)


class ReusedClusters(Generic[ReusedT]):
    """One cluster of each kind is used again until a round breaks it, or it has grown too large.

    Args:
        make: one, on an ensemble of ZooKeepers or on one of them.
        most: rounds of one.
    """

    def __init__(self, make: Callable[[bool], ReusedT], most: int) -> None:
        self._make, self._most = make, most
        self._clusters: dict[bool, ReusedT] = {}

    @contextmanager
    def round_on(self, *, ensemble: bool) -> Generator[ReusedT]:
        """Return the cluster of the next round; it is dropped if that round fails."""
        if (reused := self._clusters.get(ensemble)) and reused.rounds >= self._most:
            self._drop(ensemble)
        if ensemble not in self._clusters:
            self._clusters[ensemble] = self._make(ensemble).__enter__()
        cluster = self._clusters[ensemble]
        cluster.rounds += 1
        try:
            yield cluster
        except BaseException:
            self._drop(ensemble)
            raise

    def close(self) -> None:
        """Use none any more."""
        for ensemble in list(self._clusters):
            self._drop(ensemble)

    def _drop(self, ensemble: bool) -> None:
        if reused := self._clusters.pop(ensemble, None):
            reused.__exit__(None, None, None)
