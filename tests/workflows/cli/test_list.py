"""`pulsar-migrate list` against a real Temporal server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import workflow

from models.lifecycle.failures import FailureKind
from models.lifecycle.names import TASK_QUEUE
from tests.workflows.cli.test_cli import LIMIT, PLAN, STEP, Shell, SmallMigration, shell, small_worker
from tests.workflows.lifecycle.workers import workers

__all__ = ["shell"]


async def listed(shell: Shell, wanted: Callable[[dict[str, Any]], object], *options: str) -> dict[str, Any]:
    """List until the list is as wanted, as visibility lags; return the listed migrations by cluster."""
    async with asyncio.timeout(LIMIT):
        while True:
            answer = await shell("list", "-o", "json", *options)
            assert answer.code == 0, answer.err
            migrations = {migration["cluster"]: migration for migration in answer.json}
            if wanted(migrations):
                return migrations


async def test_list(shell: Shell) -> None:
    """Running and ended migrations are listed with kind, cluster, phase, what they wait for, and since when."""
    assert (await shell("list")).out == "there are no migrations\n"
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("waits")
        await shell("start", "metadata-store", "--cluster", "ended", *PLAN, "--dry-run", "--wait")
        failed = f"fails-{FailureKind.CONFLICT}"
        await shell("start", "metadata-store", "--cluster", failed, *PLAN, "--wait")
        migrations = await listed(
            shell,
            lambda all_: (
                {"waits", "ended", failed} <= set(all_)
                and all_["waits"]["waiting"]
                and all_["ended"]["closed"]
                and all_[failed]["closed"]
            ),
        )
        waits = migrations["waits"]
        assert (waits["kind"], waits["execution"], waits["phase"]) == ("metadata-store", "RUNNING", "WORK")
        assert waits["waiting"]["why"] == "the trial window"
        assert waits["since"] == waits["waiting"]["since"]
        assert (migrations["ended"]["outcome"], migrations["ended"]["since"]) == (
            "planned",
            migrations["ended"]["closed"],
        )
        assert (migrations[failed]["outcome"], migrations[failed]["failure"]) == ("failed", "Conflict")

        async with asyncio.timeout(LIMIT):
            # A worker that has much to do does not answer each list in time.
            while "no worker" in (text := (await shell("list")).out):
                pass
        text = text.splitlines()
        assert text[0].split() == ["KIND", "CLUSTER", "PHASE", "SINCE", "STATE"]
        assert text[1].startswith("metadata-store  waits")
        assert text[1].endswith("ago  waits for the trial window")
        assert [line.split()[1] for line in text[2:]] == [failed, "ended"]
        assert set(await listed(shell, bool, "--running")) == {"waits"}
        two = await shell("list", "--limit", "2", "-o", "json")
        assert [migration["cluster"] for migration in two.json] == ["waits", failed]
        assert "note: these are 2, running ones first, then the newest; --all shows the others too" in two.err
        assert "note: these are" not in (await shell("list", "--limit", "3")).err
        assert set(await listed(shell, bool, "--limit", "1", "--all")) == {"waits", "ended", failed}
        async with asyncio.timeout(LIMIT):
            # Of a server that does not answer in two seconds no id is offered.
            while not (offered := await completed(shell, "pulsar-migrate status met")):
                pass
        assert offered == ["metadata-store/waits"]
        assert (await shell("proceed", workflow_id)).code == 0


@workflow.defn(name="BlueGreenMigration")
class Strange:
    """A migration of a version that this one cannot read."""

    @workflow.run
    async def run(self, ends: bool) -> int:
        """Wait, or end with something that is not a report."""
        await workflow.wait_condition(lambda: ends)
        return 5

    @workflow.query
    def status(self) -> None:
        """Fail, as a query does whose workflow cannot be replayed."""
        raise ValueError("the code differs from the history")


async def test_one_migration_does_not_hide_the_others(shell: Shell) -> None:
    """A migration whose worker cannot replay it, and a report of another version, are listed with the cause."""
    options: dict[str, Any] = {"task_queue": TASK_QUEUE, "workflows": [Strange, SmallMigration], "activities": [STEP]}
    async with workers(shell.client, options):
        for name, ends in (("stuck", False), ("foreign", True)):
            await shell.client.start_workflow(Strange.run, ends, id=f"blue-green/{name}", task_queue=TASK_QUEUE)
        fine = await shell.begin_with_worker("fine")
        migrations = await listed(
            shell,
            lambda all_: (
                {"stuck", "foreign", "fine"} <= set(all_)
                and all_["foreign"]["closed"]
                and "no worker" not in all_["stuck"]["silence"]
            ),
        )
        assert "its worker cannot answer (the code differs from the history)" in migrations["stuck"]["silence"]
        assert "its report cannot be read by this version" in migrations["foreign"]["silence"]
        assert "not a migration" not in (await shell("status", "blue-green/stuck")).err
        assert (await shell("proceed", fine)).code == 0
        await shell.client.get_workflow_handle("blue-green/stuck").terminate()


async def completed(shell: Shell, line: str) -> list[str]:
    """Return what a shell offers for the last word of a line."""
    asked = {"_PULSAR_MIGRATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return (await shell(**asked)).out.split()


async def test_completion(shell: Shell) -> None:
    """A shell completes commands, kinds and options; without Temporal it offers no ids, and says nothing."""
    assert await completed(shell, "pulsar-migrate sta") == ["status", "start"]
    assert await completed(shell, "pulsar-migrate start meta") == ["metadata-store"]
    assert "--validation-window" in await completed(shell, "pulsar-migrate start metadata-store --val")
    nowhere = Shell("127.0.0.1:1", client=shell.client)
    assert await completed(nowhere, "pulsar-migrate status met") == []


async def test_list_without_a_worker(shell: Shell) -> None:
    """A migration that no worker serves is listed with what Temporal knows, and the others do not wait for it long."""
    workflow_id = await shell.begin("alone")
    migrations = await listed(shell, lambda all_: "alone" in all_, "--running")
    alone = migrations["alone"]
    assert (alone["workflow_id"], alone["target"]) == (workflow_id, "oxia://oxia:6648/default")
    assert alone["waiting"] is None
    assert "no worker on the queue pulsar-migrate answers" in alone["silence"]
    async with small_worker(shell.client):
        await shell.until_taken(workflow_id)
        assert (await shell("proceed", workflow_id)).code == 0
