"""Task of a blue-green step: both clusters, the claim, and the records of namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import attempt_number
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask
from activities.pulsar import namespace_guard as guards
from activities.pulsar.pulsar_cluster import PulsarCluster
from clients.cas.claims import ClaimKeeper, read_claim
from clients.cas.store import CasStore
from models.blue_green.batch import BatchInput, attempt_of
from models.blue_green.claims import BlueGreenClaim, NamespaceClaim, Stage
from models.blue_green.input import KIND, BlueGreenInput
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution

BlueGreenInputT = TypeVar("BlueGreenInputT", bound=BlueGreenInput)


class BothClusters(StepTask[BlueGreenInputT]):
    """An attempt at a step of a migration, or of one of its batches. Arguments as in `StepTask`.

    Attributes:
        blue: the old cluster.
        green: the new one.
    """

    kind = KIND

    def __init__(
        self,
        runtime: Runtime,
        execution: Execution[BlueGreenInputT],
        attempt: Attempt,
        context: ActivityContext,
    ) -> None:
        super().__init__(runtime, execution, attempt, context)
        self.blue, self.green = (
            self.open.enter_context(PulsarCluster(runtime, addresses, context, proxied=True))
            for addresses in (self.input.blue, self.input.green)
        )

    @property
    def names(self) -> dict[str, str]:
        """Names of clusters on green, by their names in policies of blue."""
        return {self.input.cluster: self.input.green_cluster}

    def keeper(self, store: CasStore) -> ClaimKeeper[BlueGreenClaim]:
        """Return the keeper of the migration's claim on a store."""
        return ClaimKeeper(store, BlueGreenClaim, self.attempt)


AnyBlueGreenTask: TypeAlias = BothClusters[Any]
"""The task of a migration or of a batch."""


class NamespaceGuard(guards.NamespaceGuard[NamespaceClaim]):
    """Right of an attempt to change one namespace on blue and on green. Its record is in blue's store."""

    def __init__(self, store: CasStore, me: Attempt, namespace: str) -> None:
        super().__init__(store, me, namespace, NamespaceClaim)


def holds_claim(task: AnyBlueGreenTask, store: CasStore) -> bool:
    """Return whether the task's run holds the claim on a store; if not, it has ended, or a later run took over."""
    held = read_claim(store, BlueGreenClaim)
    return held is not None and held.claim.is_of(task.attempt)


class BlueGreenTask(BothClusters[BlueGreenInput]):
    """An attempt at a step of the migration."""

    input_type = BlueGreenInput


class BatchTask(BothClusters[BatchInput]):
    """An attempt at a step of a batch of namespaces."""

    input_type = BatchInput

    @classmethod
    def attempt_of(cls, execution: Execution[BatchInput]) -> Attempt:
        """Return the attempt as claims order it among all of the migration."""
        return attempt_of(execution, attempt_number())

    @cached_property
    def store(self) -> CasStore:
        """Blue's metadata store, open until the step ends."""
        return self.open.enter_context(self.blue.store())

    @cached_property
    def guards(self) -> Sequence[NamespaceGuard]:
        """Guards of the batch's namespaces, taken by this attempt.

        Raises:
            StoreConflict: a later run or attempt has one of them.
        """
        guards = [NamespaceGuard(self.store, self.attempt, namespace) for namespace in self.input.batch]
        for guard in guards:
            guard.take()
        return guards


def guards_that_move(guards: Sequence[NamespaceGuard]) -> list[NamespaceGuard]:
    """Return the guards of a batch without those of namespaces that a rollback left on blue."""
    return [guard for guard in guards if guard.require().stage is not Stage.RETURNED]
