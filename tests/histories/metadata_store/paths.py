"""The main paths of the metadata store migration, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.verbs import Speed, Verb
from models.metadata_store.phases import Phase
from models.metadata_store.results import Census, Restoration
from models.migration_flag import FlagPhase
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run
from tests.workflows.metadata_store.activities import ANSWERS, READY, Script


async def _live(stage: Harness) -> Run:
    """Live, through the window and the cleanup."""
    in_use = Census(services=("broker-1 (a session in the source)",), unknown=())
    script = Script(census=[in_use, Census(services=(), unknown=())])
    return await stage.start(script, cleanup="remove", cleanup_at_window_end=True, validation_window="PT15M")


async def _offline(stage: Harness) -> Run:
    """Offline, without a window."""
    return await stage.start(mode="offline", validation_window="PT0S")


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(dry_run=True)


async def _blockers(stage: Harness) -> Run:
    """Ended by its precheck."""
    blocker = {"code": "SOURCE_EMPTY", "cause": "the source holds no metadata.", "cure": "check the address"}
    return await stage.start(Script(precheck=READY.model_validate({**READY.model_dump(), "blockers": (blocker,)})))


async def _steered(stage: Harness) -> Run:
    """Throttled, paused, resumed, and told to keep the source."""
    hang = Hang()
    run = await stage.start(Script(pre_copy=hang), cleanup="remove")
    await hang.entered()
    await run.update("set_throttle", Speed(megabytes_per_second=5))
    await run.steer(Verb.PAUSE)
    hang.release()
    await run.until(lambda status: status.waiting is not None)
    await run.signal(Verb.RESUME, "the load is low")
    await run.until(lambda status: status.phase == Phase.VALIDATION and "still_on_source" in status.facts)
    await run.signal(Verb.ROLLBACK, "too late")
    await run.signal(Verb.PROCEED)
    return run


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back while writes were blocked."""
    hang = Hang()
    run = await stage.start(Script(copy_changes=hang))
    await hang.entered()
    await run.signal(Verb.ROLLBACK, "brokers report errors")
    return run


async def _cancelled(stage: Harness) -> Run:
    """Cancelled while writes were blocked."""
    hang = Hang()
    run = await stage.start(Script(prepare=hang))
    await hang.entered()
    await run.handle.cancel()
    return run


async def _failed(stage: Harness) -> Run:
    """Failed in its verification, with a way back that took two attempts."""
    broken = ApplicationError("a record differs", type=FailureKind.VERIFICATION_FAILED, non_retryable=True)
    held = ApplicationError("the flag was moved", type=FailureKind.CONFLICT, non_retryable=True)
    given_back = Restoration(committed=False, flag=FlagPhase.FAILED)
    return await stage.start(Script(verify=broken, unblock_writes=[held, given_back]))


async def _deadline_after_commit(stage: Harness) -> Run:
    """Past its deadline while the commit was in flight, and committed all the same."""
    committed = Restoration(committed=True, flag=FlagPhase.COMPLETED)
    return await stage.start(
        Script(complete=[Hang(), ANSWERS["complete"]], unblock_writes=committed),
        blocked_deadline="PT0.5S",
        preparation_timeout="PT0.5S",
        validation_window="PT0S",
    )


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "live": _live,
    "offline": _offline,
    "dry-run": _dry_run,
    "blockers": _blockers,
    "steered": _steered,
    "rolled-back": _rolled_back,
    "cancelled": _cancelled,
    "failed": _failed,
    "deadline-after-commit": _deadline_after_commit,
}
