"""Record the saved histories anew: `python -m tests.histories.record [NAME]...`, by default all of them.

Needed after a deliberate change of a workflow's order of steps; before that, think of the migrations that run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from pulsar_devstack.servers.provision import provision
from tests.workflows.lifecycle.harness import Harness, Run, harness
from worker.catalog import ALL, Kind, Registered

FOLDER = Path(__file__).parent


def _module(kind: Registered) -> str:
    return (kind.docs if isinstance(kind, Kind) else "") or "paths"


SCENES: dict[str, Callable[[Harness], Awaitable[Run]]] = {
    f"{kind.name}-{name}": scene
    for kind in ALL.values()
    for name, scene in import_module(f"tests.histories.{kind.package}.{_module(kind)}").SCENES.items()
}
"""By the name of the saved history's file: those of each package's `paths.py`; another kind that shares the package has
them in a module that is called like its page.
"""

_MACHINES_OWN = ("stackTrace", "binaryChecksum")


async def record(folder: Path, names: Sequence[str]) -> list[Path]:
    """Play scenes on the test server and save their histories; returns the files."""
    files: list[Path] = []
    for name in names:
        # A server for each: its clock jumps by ten years when a migration has ended.
        async with harness(provision().test_server) as stage:
            run = await SCENES[name](stage)
            await asyncio.gather(run.handle.result(), return_exceptions=True)
            history = json.loads((await run.handle.fetch_history()).to_json())
            # As other servers than the test server tell it.
            history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"] = run.handle.id
        file = folder / f"{name}.json"
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
    files = asyncio.run(record(FOLDER, sys.argv[1:] or [*SCENES]))
    for file in files:
        sys.stdout.write(f"{file.relative_to(FOLDER.parent.parent)}  {file.stat().st_size:,} bytes\n")
    sys.stdout.flush()
    # The SDK's native threads can crash an orderly exit.
    os._exit(0)


if __name__ == "__main__":
    _main()
