"""Updates of a running switch: pace, read mode, old client, cleanup."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from activities.bookie_cluster import attribution, build, cleanup, registry, rollback, tail
from models.bookie_cluster.input import BookieClusterInput, Routing
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.state import BookieClusterState, CutoverStage
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, ReadModeChange, TargetLoss, TargetLossAnswer
from models.lifecycle.policy import ENDED, NO_NAME, person
from models.lifecycle.verbs import Verb
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.caller import by, sender
from workflows.lifecycle.migration import Migration, refused

# How long an update may take to have its effect; the switch cannot end before its updates are answered.
_EFFECT = timedelta(seconds=30)
_LISTING = timedelta(minutes=5)

_PROMOTED = (Phase.PROMOTE, Phase.ROLLBACK_WINDOW, Phase.CLEANUP)


class SwitchUpdates:
    """The updates of one switch, and when each is refused.

    Args:
        migration: the switch.
    """

    def __init__(self, migration: Migration[BookieClusterInput, BookieClusterState]) -> None:
        self._migration = migration
        self._input = migration.input
        self._state = migration.state

    # Pace -------------------------------------------------------------------------------------------------------------

    async def set_pace(self, summary: str, **change: float | None) -> None:
        """Change throttle or concurrency of the copy that runs, and of those to come."""
        async with self._locked():
            pace = self._state.pace.model_copy(update=change)
            await self._migration.activities.ask(registry.set_pace, Call(summary, total=_EFFECT), pace)
            self._state.pace = pace
            self._migration.board.note(f"{summary}, set{by()}")

    def require_copy(self) -> None:
        """Refuse where no ledgers are copied."""
        copies = self._migration.activities.is_running(build.build, tail.copy_tail)
        if not copies and self._state.running_phase != Phase.BUILD:
            raise refused("no ledgers are copied now")

    # Brokers with the plugin ------------------------------------------------------------------------------------------

    async def set_read_mode(self, change: ReadModeChange) -> None:
        """Change the brokers' read mode (PIP-477, "REST API")."""
        async with self._locked():
            self.check_read_mode()
            # Set first: a rollback restores the mode, also where this update reached some of the brokers only.
            self._state.read_mode = change.mode
            call = Call(f"Read mode: {change.mode}", total=_EFFECT)
            await self._migration.activities.ask(attribution.set_read_mode, call, change)
            self._state.facts.read_mode = change.mode
            self._migration.board.note(f"brokers read {change.mode}, set{by()}")

    def check_read_mode(self) -> None:
        """Refuse for brokers without the plugin, and before brokers write to the target."""
        self._require_plugin()
        if self._state.running_phase not in _PROMOTED:
            raise refused("the read mode can be changed once brokers write to the target, and before a rollback")

    async def close_client(self, closing: ClientClosing) -> None:
        """Close the old cluster's client (PIP-477, I5)."""
        async with self._locked():
            self.check_close_client(closing)
            call = Call(f"Close {closing.cluster}", total=_EFFECT)
            await self._migration.activities.ask(attribution.close_client, call, closing)
            self._migration.board.note(f"brokers closed their client of {closing.cluster}, requested{by()}")

    def check_close_client(self, closing: ClientClosing) -> None:
        """Refuse for brokers without the plugin, for another cluster, and while something refers to the old one."""
        self._require_plugin()
        self._require_source(closing.cluster)
        if self._state.running_phase == Phase.CLEANUP:
            return
        targets = self._state.targets
        if self._state.running_phase != Phase.ROLLBACK_WINDOW or targets is None:
            raise refused("brokers still need the old cluster; ask again in the rollback window")
        if targets.retained:
            raise refused(
                f"{targets.retained:,} ledgers of {closing.cluster} are still needed: {'; '.join(targets.reasons)}"
            )

    # Cleanup ----------------------------------------------------------------------------------------------------------

    async def clean_up(self, order: CleanupOrder) -> CleanupTargets:
        """List what would be deleted; unless it is a dry run, end the window with this order."""
        call = Call("List what a cleanup would delete", total=_LISTING)
        targets = self._state.targets = await self._migration.activities.ask(cleanup.list_targets, call, order)
        if not order.dry_run:
            # The listing took time, in which the window may have ended.
            self.check_clean_up(order)
            self._state.order = order
            self._migration.take(Verb.CLEANUP, f"{targets.ledgers:,} ledgers of {order.src_cluster}")
        return targets

    def check_clean_up(self, order: CleanupOrder) -> None:
        """Refuse for another cluster, and outside of the window."""
        self._require_source(order.src_cluster)
        if not order.dry_run:
            verbs = self._migration.verbs
            if verbs.needs_approval(Verb.CLEANUP):
                # A request shows the verb alone, and not what `force` would delete.
                raise refused(
                    "clean_up refused: two persons must agree; one sends `cleanup`, and another one `approve`"
                )
            response = verbs.judge(Verb.CLEANUP)
            if not response.accepted:
                raise refused(f"clean_up refused: {response.why}")
        elif self._state.running_phase not in (Phase.ROLLBACK_WINDOW, Phase.CLEANUP):
            raise refused("the old cluster's ledgers are in use; ask again in the rollback window")

    # The rollback -----------------------------------------------------------------------------------------------------

    async def rollback_without_target(self, loss: TargetLoss) -> TargetLossAnswer:
        """Roll back without a target that cannot be read: copy nothing from it.

        Where two persons must agree, the first update asks for it, and that of another person approves it.
        """
        async with self._locked():
            self.check_rollback_without_target(loss)
            call = Call(f"Is {loss.cluster} lost?", total=_LISTING)
            readiness = await self._migration.activities.ask(rollback.check_rollback, call)
            # mutant: bookie-cluster/gives-up-a-target-that-answers
            if not (readiness.target_blockers or readiness.target_down):
                raise refused(
                    f"{loss.cluster} can be read, and all its bookies answer: the rollback copies what only it has"
                )
            # The check took time, in which the rollback may have ended.
            self.check_rollback_without_target(loss)
            if self._input.two_persons and not self._state.loss_asked_by:
                return self._ask_for_loss(loss)
            self._state.without_target = True
            self._migration.board.note(
                f"🔴 the rollback does without {loss.cluster}, requested{by()}: what only it has is given up"
            )
        return TargetLossAnswer(cluster=loss.cluster)

    def _ask_for_loss(self, loss: TargetLoss) -> TargetLossAnswer:
        self._state.loss_asked_by = sender()
        result = f"asks another person to send the same; then the rollback does without {loss.cluster}"
        self._migration.board.note(f"rollback_without_target{by()}: {result}")
        self._migration.record("rollback_without_target", accepted=True, result=result)
        return TargetLossAnswer(cluster=loss.cluster, approved=False)

    def check_rollback_without_target(self, loss: TargetLoss) -> None:
        """Refuse for another cluster, and where nothing is copied back."""
        own = self._input.target.name
        if loss.cluster != own:
            raise refused(f"{loss.cluster!r} is not the cluster that brokers leave, which is {own!r}")
        if self._input.routing is Routing.ATTRIBUTION:
            raise refused("routing `attribution`: the rollback copies nothing")
        under_way = self._state.running_phase == Phase.ROLLED_BACK and not self._state.stays
        if not under_way or self._state.stage < CutoverStage.DIRECTED:
            raise refused("nothing is copied back from the target now; `rollback` starts one where it is legal")
        if self._input.two_persons and not self._state.without_target:
            if not sender():
                raise refused(NO_NAME)
            asked_by = self._state.loss_asked_by
            if asked_by and person(asked_by) == person(sender()):
                raise refused(f"{asked_by} has asked for it; another person must send the same")

    # Inside -----------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        async with self._migration.update_lock:
            if self._migration.verbs.ended:
                raise refused(ENDED)
            yield

    def _require_plugin(self) -> None:
        if self._input.routing is not Routing.ATTRIBUTION:
            raise refused("routing `restart`: brokers of today read one cluster, and change it by a restart only")

    def _require_source(self, cluster: str) -> None:
        own = self._input.source.name
        if cluster != own:
            raise refused(f"{cluster!r} is not the cluster that this switch leaves, which is {own!r}")
