"""Evidence of ended migrations in a folder: what remains when Temporal has forgotten them.

The folder of a migration's last run has its status or report (`view.json`), the requests of clients (`requests.json`),
the histories of all its runs, the certificates of verifications (`verification-….json`), and `SHA256SUMS`, which
`sha256sum --check` compares. A run that has continued as a new one has a folder with its history at once: Temporal may
forget it before the migration ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel
from temporalio.client import Client

from models.lifecycle.audit import AuditEntry, fault_of
from models.lifecycle.names import file_name
from models.text import one_line
from process.exit_codes import CommandFailed
from process.files import write_private
from temporal.client import ANSWER_LIMIT
from views.acts import Act, acts_in, histories, previous_run
from views.migration import list_filter, not_found, read_view
from views.verification import certificates

SUMS = "SHA256SUMS"

_CONTINUED = "= 'ContinuedAsNew'"
_ENDED = "IN ('Completed', 'Failed', 'Canceled', 'Terminated', 'TimedOut')"


class Evidence(BaseModel):
    """Evidence of one migration.

    Attributes:
        folder: with all files.
        sha256: of the file `SHA256SUMS`, and so of everything: write it down elsewhere, such as in the change ticket.
        forgotten: oldest run of which Temporal has nothing any more; empty if it has all.
        fault: what is wrong with the chain of the audit trail, or why nothing could be kept; empty if all is well.
    """

    workflow_id: str
    run_id: str
    folder: Path
    sha256: str = ""
    forgotten: str = ""
    fault: str = ""


async def keep_evidence(client: Client, root: Path, workflow_id: str = "") -> list[Evidence]:
    """Write evidence of ended migrations that has not been written yet; return what was written.

    Args:
        client: client of Temporal.
        root: folder with a folder for each workflow id, and in it one for each run.
        workflow_id: one migration; empty for all.

    One that cannot be read or written does not keep the others from being kept.

    Raises:
        RPCError: Temporal does not answer.
    """
    written: list[Evidence] = []
    for state in (_ENDED, _CONTINUED):
        query = list_filter(state) + (f" AND WorkflowId = {json.dumps(workflow_id)}" if workflow_id else "")
        async for run in client.list_workflows(query, rpc_timeout=ANSWER_LIMIT):
            folder = root / file_name(run.id) / run.run_id
            if run.parent_id is not None or _is_kept(folder, continued=state == _CONTINUED):
                continue
            evidence = Evidence(workflow_id=run.id, run_id=run.run_id, folder=folder)
            try:
                written.append(await _write(client, evidence, continued=state == _CONTINUED))
            except (CommandFailed, OSError, RuntimeError, ValueError) as error:
                written.append(evidence.model_copy(update={"fault": f"it was not kept: {one_line(str(error))}"}))
    return written


def _is_kept(folder: Path, *, continued: bool) -> bool:
    # The evidence of a migration has all its runs; that of a run is kept while the migration runs.
    return (folder / SUMS).exists() or (continued and any(folder.parent.glob(f"*/history-*-{folder.name}.json")))


async def _write(client: Client, evidence: Evidence, *, continued: bool) -> Evidence:
    folder, workflow_id, run_id = evidence.folder, evidence.workflow_id, evidence.run_id
    files: dict[str, str] = {}
    audit: Sequence[AuditEntry] = ()
    starts = [run_id]
    if not continued:
        view = await read_view(client, workflow_id, run_id=run_id, with_status=False)
        files["view.json"] = view.model_dump_json(indent=2)
        audit = view.report.audit if view.report else ()
        described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe(rpc_timeout=ANSWER_LIMIT)
        starts = [described.raw_info.first_run_id, run_id]
    runs = [run async for run in histories(client, workflow_id, *starts, follow=not continued)]
    if not runs:
        raise not_found(client, workflow_id)
    runs.sort(key=lambda run: run[1].events[0].event_time.ToNanoseconds())
    acts: list[Act] = []
    for number, (each, history) in enumerate(runs, start=1):
        files[f"history-{number}-{each}.json"] = history.to_json()
        acts += await acts_in(client, each, history)
    read = {each for each, _ in runs}
    before = [previous_run(history) for _, history in runs]
    forgotten = "" if continued else next((run for run in before if run and run not in read), "")
    if not continued:
        async for each, certificate in certificates(client, workflow_id, starts[0]):
            files[f"verification-{each}.json"] = certificate.model_dump_json(indent=2)
    files["requests.json"] = json.dumps([act.model_dump(mode="json") for act in acts], indent=2, ensure_ascii=False)
    sums = "".join(f"{_sha256(text)}  {name}\n" for name, text in sorted(files.items()))
    _place(folder, {**files, SUMS: sums})
    return evidence.model_copy(update={"sha256": _sha256(sums), "forgotten": forgotten, "fault": fault_of(audit)})


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
