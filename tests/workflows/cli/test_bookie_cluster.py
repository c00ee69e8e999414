"""The commands of the bookie cluster migration against a real Temporal server, with its steps doubled."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client

from models.lifecycle.names import TASK_QUEUE
from tests.workflows.bookie_cluster.activities import BUILT, CENSUS, TARGETS, AttributionScript
from tests.workflows.cli.test_cli import Shell, shell
from tests.workflows.lifecycle.doubles import Doubles, Hang, Script
from tests.workflows.lifecycle.workers import workers
from worker import catalog as migrations

__all__ = ["shell"]

OLD = ("--source", "name=old", "--source", "metadataServiceUri=zk://zk:2181/ledgersA")
NEW = ("--target", "name=new", "--target", "metadataServiceUri=zk://zk:2181/ledgersB")
PLAN = ("--metadata-url", "zk:zk:2181", *OLD, *NEW, "--routing", "attribution", "--no-hold-before-cutover")


@asynccontextmanager
async def doubled_worker(client: Client, cluster: str, script: Script) -> AsyncGenerator[None]:
    """Run a worker whose steps play the script of one switch."""
    doubles = Doubles()
    doubles.scripts[cluster] = script
    options: dict[str, Any] = {
        "task_queue": TASK_QUEUE,
        "workflows": migrations.workflows(),
        "activities": doubles.activities(),
    }
    async with workers(client, options):
        yield


async def test_commands_of_a_switch(shell: Shell) -> None:
    """A switch is started, paced, inspected, confirmed and cleaned up from the command line."""
    hang = Hang()
    free = CENSUS.model_copy(update={"targets": TARGETS.model_copy(update={"retained": 0, "reasons": ()})})
    script = AttributionScript(build=[hang, BUILT], census=free)
    name = "bookie-cluster/words"
    async with doubled_worker(shell.client, "words", script):
        started = await shell("start", "bookie-cluster", "--cluster", "words", *PLAN)
        assert started.code == 0, started.err
        await hang.entered()
        assert (await shell("concurrency", name, "4")).out == "concurrency: 4 batches\n"
        wrong = await shell("concurrency", name, "none")
        assert (wrong.code, "error: batches: " in wrong.err) == (2, True)
        nothing = await shell("cleanup-targets", name, "-o", "json")
        assert (nothing.code, nothing.json) == (0, {"listed": False})
        early = await shell("read-mode", name, "DUAL_READ")
        assert (early.code, "once brokers write to the target" in early.err) == (5, True)
        hang.release()

        await shell.status_with(name, lambda view: "target_only_ledgers" in view["status"]["facts"])
        assert (await shell("read-mode", name, "OLD_CLUSTER_ONLY")).out == "read mode: OLD_CLUSTER_ONLY\n"
        assert (await shell("close-client", name, "old")).out == "brokers closed their client of old\n"
        listed = await shell("cleanup-targets", name)
        assert listed.err.endswith("--type list_cleanup_targets\n")
        assert listed.out.startswith("1,100 ledgers of old (30.0 MB) would be deleted, e.g. 1, 2, 3\n0 are kept")
        dry = await shell("clean-up", name, "--src-cluster", "old", "--dry-run")
        assert dry.out.endswith("2 are kept\nkept       2 are referred to\n")
        refused = await shell("rollback-without-target", name, "new")
        assert (refused.code, "the rollback copies nothing" in refused.err) == (5, True)
        other = await shell("clean-up", name, "--src-cluster", "new")
        assert (other.code, "'new' is not the cluster that this switch leaves" in other.err) == (5, True)

        done = await shell("clean-up", name, "--src-cluster", "old", "--max-deletions", "5000", "--force", "-o", "json")
        assert (done.code, done.json["ledgers"]) == (0, 1100)
        ended = await shell("status", name, "--watch")
        assert (ended.code, "deleted from source 1,100 ledgers" in ended.out) == (0, True)


async def test_query_of_an_unknown_switch(shell: Shell) -> None:
    """A switch that does not exist is a usage error."""
    answer = await shell("cleanup-targets", "bookie-cluster/unknown")
    assert (answer.code, "no workflow bookie-cluster/unknown" in answer.err) == (2, True)
