"""What the operator says to a bookie cluster switch beside the verbs: pace, read mode, old client, cleanup."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.bookie_cluster.activities import BookieClusterActivities as Steps
    from models.bookie_cluster.input import KIND, BookieClusterInput, Direction, Routing
    from models.bookie_cluster.phases import Phase
    from models.bookie_cluster.results import CleanupTargets
    from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Concurrency, Pace, ReadModeChange
    from models.bookie_registry import ReadMode
    from models.lifecycle.failures import FailureKind
    from models.lifecycle.policy import ENDED, PhasePolicy
    from models.lifecycle.verbs import Speed, Verb
    from workflows.bookie_cluster.policy import POLICIES
    from workflows.lifecycle.migration import Migration

ResultT = TypeVar("ResultT")

# How long a word may take to have its effect; the switch cannot end before its updates are answered.
_WORD = timedelta(seconds=30)
_LISTING = timedelta(minutes=5)

_PROMOTED = (Phase.PROMOTE, Phase.ROLLBACK_WINDOW, Phase.CLEANUP)


@dataclass(frozen=True)
class FailedItems:
    """What one step could not do: what these are, some of them (`name: why`), and how many there are."""

    what: str
    named: tuple[str, ...]
    count: int

    @property
    def items(self) -> list[str]:
        """As the report lists them."""
        more = self.count - len(self.named)
        return [*self.named, *([f"{more:,} more {self.what}"] if more > 0 else [])]

    @property
    def names(self) -> frozenset[str]:
        """The names, which stay the same when the reasons differ."""
        return frozenset(item.partition(":")[0] for item in self.named)


class SteeredSwitch(Migration[BookieClusterInput]):
    """The state of a switch, with its query and updates."""

    def __init__(self, input: BookieClusterInput) -> None:
        self.rules: dict[Phase, PhasePolicy] = POLICIES[input.routing]
        super().__init__(
            input, kind=KIND, target=input.target.name, first=Phase.REGISTER, rules=self.rules[Phase.REGISTER]
        )
        self.order: CleanupOrder | None = None
        self.targets: CleanupTargets | None = None
        self.read_mode = ReadMode.DUAL_READ
        self.update_lock = asyncio.Lock()
        self._pace = Pace(throttle=input.throttle, concurrency=input.migration_concurrency)
        self._copying = False
        self._troubles: dict[str, FailedItems] = {}
        self._accepted: dict[str, FailedItems] = {}

    # What could not be done -----------------------------------------------------------------------------------------

    def tell(self, *troubles: FailedItems) -> None:
        """Name what could not be done; what was said of the same kind before is outdated."""
        self._troubles.update((trouble.what, trouble) for trouble in troubles)
        self.failed_items = [item for trouble in self._troubles.values() for item in trouble.items]
        self.publish()

    def forget_troubles(self) -> None:
        """The direction changes: what could not be done before does not matter any more."""
        self._troubles.clear()
        self._accepted.clear()
        self.tell()

    async def decide(self, *troubles: FailedItems, effect: str) -> None:
        """Tell troubles, and wait for the operator's decision if there are some that it has not covered yet."""
        self.tell(*troubles)
        fresh = [trouble for trouble in troubles if self._is_fresh(trouble)]
        if not fresh:
            return
        listed = "; ".join(f"{trouble.count:,} {trouble.what} ({_first(trouble.named)})" for trouble in fresh)
        await self.decision(f"a decision: {listed}", effect)
        self._accepted.update((trouble.what, trouble) for trouble in troubles)

    def _is_fresh(self, trouble: FailedItems) -> bool:
        """Whether it says more than what was decided on; a position whose ledger was given up says nothing new."""
        known = self._accepted.get(trouble.what)
        uncounted = trouble.count > max(len(trouble.named), known.count if known else 0)
        names = sorted(frozenset[str]().union(*(accepted.names for accepted in self._accepted.values())))
        decided = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))
        return uncounted or any(not names or not decided.search(item) for item in trouble.named)

    async def copy(self, step: Callable[..., Awaitable[ResultT]], direction: Direction, *, summary: str) -> ResultT:
        """Run a step that copies ledgers, whose pace the operator can change."""
        self._copying = True
        try:
            return await self.step(step, direction, summary=summary)
        finally:
            self._copying = False

    # Pace -----------------------------------------------------------------------------------------------------------

    @workflow.update(description="Limit the copy to megabytes of entries per second; null lifts the limit.")
    async def set_throttle(self, speed: Speed) -> Speed:
        """Change the throttle of the copy that runs."""
        limit = speed.megabytes_per_second
        await self._set_pace(f"throttle is now {'off' if limit is None else f'{limit:g} MB/s'}", throttle=limit)
        return speed

    @set_throttle.validator
    def check_set_throttle(self, speed: Speed) -> None:
        """Refuse where no ledgers are copied."""
        del speed
        self._require_copy()

    @workflow.update(description="Set how many batches of ledgers are copied at once.")
    async def set_concurrency(self, concurrency: Concurrency) -> Concurrency:
        """Change the concurrency of the copy that runs."""
        batches = concurrency.batches
        await self._set_pace(f"concurrency is now {batches:,} batches", concurrency=batches)
        return concurrency

    @set_concurrency.validator
    def check_set_concurrency(self, concurrency: Concurrency) -> None:
        """Refuse where no ledgers are copied."""
        del concurrency
        self._require_copy()

    async def _set_pace(self, told: str, **change: float | None) -> None:
        async with self._update_lock():
            pace = self._pace.model_copy(update=change)
            await self.step(Steps.set_pace, pace, summary=told, total=_WORD)
            self._pace = pace
            self.note(told)

    def _require_copy(self) -> None:
        if not self._copying and self.running_phase != Phase.BUILD:
            raise _refused("no ledgers are copied now")

    # Brokers with the plugin ----------------------------------------------------------------------------------------

    @workflow.update(description="Tell brokers from which clusters to read: DUAL_READ, OLD_CLUSTER_ONLY, …")
    async def set_read_mode(self, change: ReadModeChange) -> ReadModeChange:
        """Change the brokers' read mode (PIP-477, "REST API")."""
        async with self._update_lock():
            self.check_set_read_mode(change)
            # Set first: a way back restores the mode, also where this word reached some of the brokers only.
            self.read_mode = change.mode
            await self.step(Steps.set_read_mode, change, summary=f"Read mode: {change.mode}", total=_WORD)
            self.facts["read_mode"] = change.mode
            self.note(f"brokers read {change.mode}")
        return change

    @set_read_mode.validator
    def check_set_read_mode(self, change: ReadModeChange) -> None:
        """Refuse for brokers without the plugin, and before brokers write to the target."""
        del change
        self._require_plugin()
        if self.running_phase not in _PROMOTED:
            raise _refused("the read mode can be changed once brokers write to the target, and before a rollback")

    @workflow.update(description="Have brokers close their client of the old cluster, once nothing refers to that.")
    async def close_client(self, closing: ClientClosing) -> ClientClosing:
        """Close the old cluster's client (PIP-477, I5)."""
        async with self._update_lock():
            self.check_close_client(closing)
            await self.step(Steps.close_client, closing, summary=f"Close {closing.cluster}", total=_WORD)
            self.note(f"brokers closed their client of {closing.cluster}")
        return closing

    @close_client.validator
    def check_close_client(self, closing: ClientClosing) -> None:
        """Refuse for brokers without the plugin, for another cluster, and while something refers to the old one."""
        self._require_plugin()
        self._require_source(closing.cluster)
        if self.running_phase == Phase.CLEANUP:
            return
        if self.running_phase != Phase.ROLLBACK_WINDOW or self.targets is None:
            raise _refused("brokers still need the old cluster; ask again in the rollback window")
        if self.targets.kept:
            why = "; ".join(self.targets.reasons)
            raise _refused(f"{self.targets.kept:,} ledgers of {closing.cluster} are still needed: {why}")

    # Cleanup --------------------------------------------------------------------------------------------------------

    @workflow.query(description="The ledgers of the old cluster that a cleanup would delete, as last listed.")
    def list_cleanup_targets(self) -> CleanupTargets | None:
        """Answer the query `list_cleanup_targets`; None before the first listing."""
        return self.targets

    @workflow.update(description="End the window and delete the old cluster's ledgers, or list them (dry_run).")
    async def clean_up(self, order: CleanupOrder) -> CleanupTargets:
        """List what would be deleted; unless it is a dry run, end the window with this order."""
        self.targets = await self.step(
            Steps.list_targets, order, summary="List what a cleanup would delete", total=_LISTING
        )
        if not order.dry_run:
            # The listing took time, in which the window may have ended.
            self.check_clean_up(order)
            self.order = order
            self._take(Verb.CLEANUP, f"{self.targets.ledgers:,} ledgers of {order.src_cluster}")
        return self.targets

    @clean_up.validator
    def check_clean_up(self, order: CleanupOrder) -> None:
        """Refuse for another cluster, and outside of the window."""
        self._require_source(order.src_cluster)
        if not order.dry_run:
            verdict = self.lifecycle.judge(Verb.CLEANUP)
            if not verdict.accepted:
                raise _refused(f"clean_up refused: {verdict.why}")
        elif self.running_phase not in (Phase.ROLLBACK_WINDOW, Phase.CLEANUP):
            raise _refused("the old cluster's ledgers are in use; ask again in the rollback window")

    # Inside ---------------------------------------------------------------------------------------------------------

    @property
    def running_phase(self) -> str:
        """The phase that runs; empty between phases and at the end."""
        return next((entry.phase for entry in self.history[-1:] if not entry.ended), "")

    @asynccontextmanager
    async def _update_lock(self) -> AsyncGenerator[None]:
        """One word after the other: each builds on what the one before has set."""
        async with self.update_lock:
            if self.lifecycle.ended:
                raise _refused(ENDED)
            yield

    def _require_plugin(self) -> None:
        if self.input.routing is not Routing.ATTRIBUTION:
            raise _refused("routing `restart`: brokers of today read one cluster, and change it by a restart only")

    def _require_source(self, cluster: str) -> None:
        if cluster != self.input.source.name:
            raise _refused(
                f"{cluster!r} is not the cluster that this switch leaves, which is {self.input.source.name!r}"
            )


def _first(named: Sequence[str]) -> str:
    return f"{', '.join(named[:3])}{', …' if len(named) > 3 else ''}"


def _refused(why: str) -> ApplicationError:
    return ApplicationError(why, type=FailureKind.REFUSED)
