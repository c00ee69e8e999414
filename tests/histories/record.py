"""Record the saved histories anew: `python -m tests.histories.record`.

Needed after a deliberate change of a workflow's order of steps; before that, think of the migrations that run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from temporalio.exceptions import ApplicationError

from deploy.devstack.provision import provision
from models.metadata_store import Census, FlagPhase, Phase, Restoration
from models.migration import FailureKind, Speed, Verb
from tests.workflows.doubles import Hang
from tests.workflows.harness import Harness, Run, harness
from tests.workflows.metadata_store_steps import ANSWERS, READY, Script

FOLDER = Path(__file__).parent

_MACHINES_OWN = ("stackTrace", "binaryChecksum")


async def _live(stage: Harness) -> Run:
    """Live, through the window and the cleanup."""
    in_use = Census(services=("broker-1 (a session in the source)",), unknown=())
    script = Script(take_census=[in_use, Census(services=(), unknown=())])
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
    return await stage.start(Script(verify=broken, give_back=[held, given_back]))


async def _deadline_after_commit(stage: Harness) -> Run:
    """Past its deadline while the commit was in flight, and committed all the same."""
    committed = Restoration(committed=True, flag=FlagPhase.COMPLETED)
    return await stage.start(
        Script(complete=[Hang(), ANSWERS["complete"]], give_back=committed),
        blocked_deadline="PT0.5S",
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


async def record(folder: Path) -> list[Path]:
    """Play all scenes on the test server and save their histories; returns the files."""
    files: list[Path] = []
    for name, scene in SCENES.items():
        # A server for each: its clock jumps by ten years when a migration has ended.
        async with harness(provision().test_server) as stage:
            run = await scene(stage)
            await asyncio.gather(run.handle.result(), return_exceptions=True)
            history = json.loads((await run.handle.fetch_history()).to_json())
        file = folder / f"metadata-store-{name}.json"
        file.write_text(json.dumps(without_machine(history), separators=(",", ":"), ensure_ascii=False) + "\n")
        files.append(file)
    return files


def without_machine(part: Any) -> Any:
    """A history without traces of code that name paths of the machine that recorded it."""
    if isinstance(part, dict):
        fields = cast("dict[str, Any]", part)
        return {key: without_machine(value) for key, value in fields.items() if key not in _MACHINES_OWN}
    if isinstance(part, list):
        return [without_machine(item) for item in cast("list[Any]", part)]
    return part


def _main() -> None:
    files = asyncio.run(record(FOLDER))
    for file in files:
        sys.stdout.write(f"{file.relative_to(FOLDER.parent.parent)}  {file.stat().st_size:,} bytes\n")
    sys.stdout.flush()
    # The SDK's native threads can crash an orderly exit.
    os._exit(0)


if __name__ == "__main__":
    _main()
