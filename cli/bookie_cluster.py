"""What the command line knows of the bookie cluster switch alone: commands for pace, read mode, and the old cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from cli.migrations import Servers
from cli.operations import against_temporal, checked, query, query_line, send_update
from cli.options import Form, Output, WorkflowId, answer, hint
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.updates import CleanupOrder, ClientClosing, Concurrency, ReadModeChange, TargetLoss

_QUERY = "list_cleanup_targets"


def concurrency_command(
    workflow_id: WorkflowId,
    batches: Annotated[str, typer.Argument(metavar="BATCHES", help="Batches of ledgers that are copied at once.")],
    output: Output = Form.TEXT,
) -> None:
    """Set how many batches of ledgers are copied at once, while a bookie cluster switch copies."""
    taken = send_update(workflow_id, "set_concurrency", checked(Concurrency, {"batches": batches}), Concurrency)
    answer(output, [f"concurrency: {taken.batches} batches"], taken)


def read_mode_command(
    workflow_id: WorkflowId,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="DUAL_READ, OLD_CLUSTER_ONLY or NEW_CLUSTER_ONLY.")],
    output: Output = Form.TEXT,
) -> None:
    """Tell brokers with the plugin from which bookie clusters to read."""
    taken = send_update(workflow_id, "set_read_mode", checked(ReadModeChange, {"mode": mode}), ReadModeChange)
    answer(output, [f"read mode: {taken.mode}"], taken)


def close_client_command(
    workflow_id: WorkflowId,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the old cluster.")],
    output: Output = Form.TEXT,
) -> None:
    """Have brokers with the plugin close their client of the old cluster, once nothing refers to that."""
    taken = send_update(workflow_id, "close_client", checked(ClientClosing, {"cluster": cluster}), ClientClosing)
    answer(output, [f"brokers closed their client of {taken.cluster}"], taken)


def go_back_without_target_command(
    workflow_id: WorkflowId,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the target, which is lost.")],
    output: Output = Form.TEXT,
) -> None:
    """Let a rollback that waits for a target that is lost do without it: what only the target has is given up."""
    taken = send_update(workflow_id, "go_back_without_target", checked(TargetLoss, {"cluster": cluster}), TargetLoss)
    answer(output, [f"the way back does without {taken.cluster}"], taken)


def clean_up_command(
    workflow_id: WorkflowId,
    *,
    src_cluster: Annotated[str, typer.Option(help="Name of the old cluster, whose ledgers are deleted.")],
    max_deletions: Annotated[str | None, typer.Option(metavar="N", help="Most ledgers to delete.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while a broker seems to use the old cluster.")] = False,
    output: Output = Form.TEXT,
) -> None:
    """End the window of a bookie cluster switch and delete the old cluster's ledgers, or list them."""
    typed = {"src_cluster": src_cluster, "max_deletions": max_deletions, "dry_run": dry_run, "force": force}
    found = send_update(workflow_id, "clean_up", checked(CleanupOrder, typed), CleanupTargets)
    answer(output, _lines(found, "would be deleted" if dry_run else "will be deleted"), found)


def cleanup_targets_command(workflow_id: WorkflowId, output: Output = Form.TEXT) -> None:
    """Show the ledgers of the old cluster that a cleanup would delete, as the switch last listed them."""
    hint(query_line(workflow_id, _QUERY))
    found = against_temporal(lambda client: query(client, workflow_id, _QUERY, CleanupTargets))
    if found is None:
        answer(output, ["nothing is listed yet: the first listing is made in the rollback window"], {"listed": False})
    else:
        answer(output, _lines(found, "would be deleted"), found)


def _lines(found: CleanupTargets, what: str) -> list[str]:
    examples = f", e.g. {', '.join(map(str, found.examples))}" if found.examples else ""
    deleted = f"{found.ledgers:,} ledgers of {found.cluster} ({found.entry_bytes / 1e6:,.1f} MB) {what}{examples}"
    return [deleted, f"{found.kept:,} are kept", *(f"kept       {reason}" for reason in found.reasons)]


def servers(input: BookieClusterInput) -> Servers:
    """The brokers' metadata store, and both bookie clusters."""
    return Servers(
        cluster=input.cluster,
        metadata=input.store,
        stores={"metadata store": input.store},
        bookie_clusters={cluster.name: cluster.root for cluster in (input.source, input.target)},
    )


COMMANDS: dict[str, Callable[..., None]] = {
    "concurrency": concurrency_command,
    "read-mode": read_mode_command,
    "cleanup-targets": cleanup_targets_command,
    "clean-up": clean_up_command,
    "close-client": close_client_command,
    "go-back-without-target": go_back_without_target_command,
}
"""The commands that this migration alone has."""
