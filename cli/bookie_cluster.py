"""Commands of the bookie cluster migration: copy speed, read mode, and the old cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from cli.migrations import Servers
from cli.operations import against_temporal, checked, query, query_line, send_update
from cli.options import Form, Output, WorkflowId, answer, hint
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.results import CleanupTargets
from models.bookie_cluster.updates import (
    CleanupOrder,
    ClientClosing,
    Concurrency,
    ReadModeChange,
    TargetLoss,
    TargetLossAnswer,
)

_QUERY = "list_cleanup_targets"


def concurrency_command(
    workflow_id: WorkflowId,
    batches: Annotated[str, typer.Argument(metavar="BATCHES", help="Number of batches of ledgers to copy at once.")],
    output: Output = Form.TEXT,
) -> None:
    """Set how many batches of ledgers a running bookie cluster migration copies at once."""
    taken = send_update(workflow_id, "set_concurrency", checked(Concurrency, {"batches": batches}), Concurrency)
    answer(output, [f"concurrency: {taken.batches} batches"], taken)


def read_mode_command(
    workflow_id: WorkflowId,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="DUAL_READ, OLD_CLUSTER_ONLY or NEW_CLUSTER_ONLY.")],
    output: Output = Form.TEXT,
) -> None:
    """Set from which bookie clusters brokers with the plugin read."""
    taken = send_update(workflow_id, "set_read_mode", checked(ReadModeChange, {"mode": mode}), ReadModeChange)
    answer(output, [f"read mode: {taken.mode}"], taken)


def close_client_command(
    workflow_id: WorkflowId,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the old cluster.")],
    output: Output = Form.TEXT,
) -> None:
    """Close the old cluster's client in brokers with the plugin, once nothing refers to that cluster."""
    taken = send_update(workflow_id, "close_client", checked(ClientClosing, {"cluster": cluster}), ClientClosing)
    answer(output, [f"brokers closed their client of {taken.cluster}"], taken)


def rollback_without_target_command(
    workflow_id: WorkflowId,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the lost target cluster.")],
    output: Output = Form.TEXT,
) -> None:
    """Continue a rollback that waits for a lost target without it; data that only the target has is lost."""
    loss = checked(TargetLoss, {"cluster": cluster})
    taken = send_update(workflow_id, "rollback_without_target", loss, TargetLossAnswer)
    said = f"the rollback continues without {taken.cluster}"
    answer(output, [said if taken.approved else "asked for; another person must run the same command"], taken)


def clean_up_command(
    workflow_id: WorkflowId,
    *,
    src_cluster: Annotated[str, typer.Option(help="Name of the old cluster, whose ledgers are deleted.")],
    max_deletions: Annotated[
        str | None, typer.Option(metavar="N", help="Most ledgers to delete (default: no limit).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete even if a broker seems to use the old cluster.")
    ] = False,
    output: Output = Form.TEXT,
) -> None:
    """End the window of a bookie cluster migration and delete the old cluster's ledgers, or list them."""
    typed = {"src_cluster": src_cluster, "max_deletions": max_deletions, "dry_run": dry_run, "force": force}
    targets = send_update(workflow_id, "clean_up", checked(CleanupOrder, typed), CleanupTargets)
    answer(output, _lines(targets, "would be deleted" if dry_run else "will be deleted"), targets)


def cleanup_targets_command(workflow_id: WorkflowId, output: Output = Form.TEXT) -> None:
    """Show the ledgers of the old cluster that a cleanup would delete, as the switch last listed them."""
    hint(query_line(workflow_id, _QUERY))
    targets = against_temporal(lambda client: query(client, workflow_id, _QUERY, CleanupTargets))
    if targets is None:
        answer(output, ["nothing is listed yet: the first listing is made in the rollback window"], {"listed": False})
    else:
        answer(output, _lines(targets, "would be deleted"), targets)


def _lines(targets: CleanupTargets, what: str) -> list[str]:
    examples = f", e.g. {', '.join(map(str, targets.examples))}" if targets.examples else ""
    deleted = f"{targets.ledgers:,} ledgers of {targets.cluster} ({targets.entry_bytes / 1e6:,.1f} MB) {what}{examples}"
    return [deleted, f"{targets.retained:,} are kept", *(f"kept       {reason}" for reason in targets.reasons)]


def servers(input: BookieClusterInput) -> Servers:
    """Return the brokers' metadata store and both bookie clusters."""
    return Servers(
        cluster=input.cluster,
        metadata=input.store,
        stores={"metadata store": input.store},
        bookie_clusters={cluster.name: cluster.root for cluster in (input.source, input.target)},
        credentials=input.credentials,
        store_credentials=input.store_credentials,
    )


COMMANDS: dict[str, Callable[..., None]] = {
    "concurrency": concurrency_command,
    "read-mode": read_mode_command,
    "cleanup-targets": cleanup_targets_command,
    "clean-up": clean_up_command,
    "close-client": close_client_command,
    "rollback-without-target": rollback_without_target_command,
}
"""Commands of this migration only, by name."""
