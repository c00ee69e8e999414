"""The main paths of the bookie cluster migration, as saved histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio.exceptions import ApplicationError

from models.bookie_cluster.results import LedgersDeleted
from models.bookie_cluster.updates import CleanupOrder, Concurrency, ReadModeChange
from models.bookie_registry import ReadMode
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Status
from models.lifecycle.verbs import Speed, Verb
from tests.workflows.bookie_cluster.activities import (
    ANSWERS,
    BLOCKED,
    BUILT,
    CONTESTED,
    FAILED,
    HOLED,
    PROMOTED,
    TOO_LOW,
    AttributionScript,
    Script,
)
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, Run

DENIED = ApplicationError("no right to write", type=FailureKind.DENIED, non_retryable=True)


async def _restart(stage: Harness) -> Run:
    """Brokers restart; ids are lifted twice, and ledgers are deleted in parts at the window's end."""
    parts = [LedgersDeleted(deleted=500, remaining=600), LedgersDeleted(deleted=600, remaining=0)]
    return await stage.start(
        Script(check_ids=TOO_LOW, delete_ledgers=parts),
        advance_ids=True,
        cleanup="remove",
        cleanup_at_window_end=True,
        rollback_window="PT15M",
    )


async def _attribution(stage: Harness) -> Run:
    """Brokers have the plugin; contested positions are tried again."""
    return await stage.start(AttributionScript(promote=[CONTESTED, PROMOTED]), rollback_window="PT15M")


async def _dry_run(stage: Harness) -> Run:
    """A dry run."""
    return await stage.start(Script(), dry_run=True)


async def _blockers(stage: Harness) -> Run:
    """Ended by its precheck."""
    return await stage.start(Script(precheck=BLOCKED))


async def _decided(stage: Harness) -> Run:
    """Went on without ledgers that could not be copied, and ended with failures."""
    run = await stage.start(Script(build=FAILED, copy_tail=HOLED), rollback_window="PT0S")
    await run.until(lambda status: status.waiting is not None)
    await run.signal(Verb.PROCEED, "nobody reads them")
    return run


async def _steered(stage: Harness) -> Run:
    """Paced, paused, resumed, and cleaned up by an order."""
    hang, catching_up = Hang(), Hang()
    run = await stage.start(Script(build=[hang, catching_up, BUILT]))
    await hang.entered()
    await run.update("set_throttle", Speed(megabytes_per_second=5))
    await run.update("set_concurrency", Concurrency(batches=2))
    await run.signal(Verb.PAUSE)
    hang.release()
    await catching_up.entered()
    await run.signal(Verb.RESUME)
    await run.until(_in_window)
    await run.update("clean_up", CleanupOrder(src_cluster="old", max_deletions=2000))
    return run


async def _rolled_back(stage: Harness) -> Run:
    """Rolled back within the window, by a rollback that took two attempts."""
    starts = [ANSWERS["start_brokers"], DENIED, ANSWERS["start_brokers"]]
    run = await stage.start(Script(start_brokers=starts))
    await run.until(_in_window)
    await run.signal(Verb.ROLLBACK, "consumers report gaps")
    return run


async def _attribution_rolled_back(stage: Harness) -> Run:
    """Rolled back with the read mode changed; the copies were kept for a while."""
    run = await stage.start(AttributionScript(), deletion_delay="PT30M")
    await run.until(_in_window)
    await run.update("set_read_mode", ReadModeChange(mode=ReadMode.OLD_CLUSTER_ONLY))
    await run.signal(Verb.ROLLBACK)
    return run


async def _longest_pause(stage: Harness) -> Run:
    """Past its longest pause while the tail was copied."""
    return await stage.start(Script(copy_tail=Hang()), pause_deadline="PT0.5S")


async def _cancelled(stage: Harness) -> Run:
    """Cancelled while brokers were stopped."""
    hang = Hang()
    run = await stage.start(Script(copy_tail=hang))
    await hang.entered()
    await run.handle.cancel()
    return run


async def _failed(stage: Harness) -> Run:
    """Failed when brokers were to start on the target, and was rolled back from there."""
    return await stage.start(Script(start_brokers=[DENIED, ANSWERS["start_brokers"]]))


def _in_window(status: Status) -> bool:
    return "window" in status.deadlines and "target_only_ledgers" in status.facts


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    "restart": _restart,
    "attribution": _attribution,
    "dry-run": _dry_run,
    "blockers": _blockers,
    "decided": _decided,
    "steered": _steered,
    "rolled-back": _rolled_back,
    "attribution-rolled-back": _attribution_rolled_back,
    "longest-pause": _longest_pause,
    "cancelled": _cancelled,
    "failed": _failed,
}
