"""Evidence of ended migrations in a folder: what remains when Temporal has forgotten them.

The folder of a run has its status or report (`view.json`), the requests of clients (`requests.json`), the histories of
all its runs, and `SHA256SUMS`, which `sha256sum --check` compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel
from temporalio.client import Client

from models.lifecycle.audit import fault_of
from process.files import write_private
from temporal.client import ANSWER_LIMIT
from views.acts import Act, acts_in, histories
from views.migration import list_filter, read_view

SUMS = "SHA256SUMS"

_ENDED = "IN ('Completed', 'Failed', 'Canceled', 'Terminated', 'TimedOut')"


class Evidence(BaseModel):
    """Evidence of one migration.

    Attributes:
        folder: with all files.
        sha256: of the file `SHA256SUMS`, and so of everything: write it down elsewhere, such as in the change ticket.
        fault: what is wrong with the chain of the audit trail; empty if nothing is.
    """

    workflow_id: str
    run_id: str
    folder: Path
    sha256: str
    fault: str


async def keep_evidence(client: Client, root: Path, workflow_id: str = "") -> list[Evidence]:
    """Write evidence of ended migrations that has not been written yet; return what was written.

    Args:
        client: client of Temporal.
        root: folder with a folder for each workflow id, and in it one for each run.
        workflow_id: one migration; empty for all.

    Raises:
        CommandFailed: the migration is not there any more.
        OSError: the folder cannot be written.
        RPCError: Temporal does not answer.
    """
    query = list_filter(_ENDED)
    if workflow_id:
        query += f" AND WorkflowId = {json.dumps(workflow_id)}"
    written: list[Evidence] = []
    async for ended in client.list_workflows(query, rpc_timeout=ANSWER_LIMIT):
        folder = root / quote(ended.id, safe="") / ended.run_id
        if ended.parent_id is None and not (folder / SUMS).exists():
            written.append(await _write(client, folder, ended.id, ended.run_id))
    return written


async def _write(client: Client, folder: Path, workflow_id: str, run_id: str) -> Evidence:
    view = await read_view(client, workflow_id, run_id=run_id, with_status=False)
    files = {"view.json": view.model_dump_json(indent=2)}
    described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe(rpc_timeout=ANSWER_LIMIT)
    acts: list[Act] = []
    starts = (described.raw_info.first_run_id, run_id)
    async for each, history in histories(client, workflow_id, *starts):
        files[f"history-{len(files)}-{each}.json"] = history.to_json()
        acts += await acts_in(client, each, history)
    files["requests.json"] = json.dumps([act.model_dump(mode="json") for act in acts], indent=2, ensure_ascii=False)
    sums = "".join(f"{_sha256(text)}  {name}\n" for name, text in sorted(files.items()))
    _place(folder, {**files, SUMS: sums})
    fault = fault_of(view.report.audit) if view.report else ""
    return Evidence(workflow_id=workflow_id, run_id=run_id, folder=folder, sha256=_sha256(sums), fault=fault)


def _place(folder: Path, files: dict[str, str]) -> None:
    """Write all files, then give the folder its name: there is no folder with a part of them."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    for name, text in files.items():
        write_private(unfinished / name, text)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was faster.
        shutil.rmtree(unfinished, ignore_errors=True)
        if not (folder / SUMS).exists():
            raise


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
