"""`pulsar-migrate verify` against a real Temporal server."""

from __future__ import annotations

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.verification import context
from models.lifecycle.names import TASK_QUEUE
from models.verification.input import verification_id
from temporal.search_attributes import register_search_attributes
from tests.workflows.cli.test_cli import Shell, shell, small_worker
from views import verification
from workflows.lifecycle.search_attributes import PHASE_KEY

__all__ = ["shell"]


async def test_a_running_verification_of_another_scope_is_not_followed(shell: Shell) -> None:
    """Its certificate would say nothing about what was asked for."""
    await register_search_attributes(shell.client)
    input = {"cluster": "two", "source": "zk:zk:2181", "target": "oxia://oxia:6648"}
    migration = await shell.client.start_workflow(
        "MetadataStoreMigration",
        input,
        id="metadata-store/two",
        task_queue=TASK_QUEUE,
        search_attributes=TypedSearchAttributes([SearchAttributePair(PHASE_KEY, "CATCH_UP")]),
    )
    begun = await shell("verify", migration.id, "--path", "/admin", "--no-wait")
    assert begun.code == 0, begun.err
    refused = await shell("verify", migration.id, "--path", "/schemas", "--no-wait")
    assert refused.code == 6, refused.err
    assert "is running already, and compares /admin." in refused.err
    assert f"pulsar-migrate verify {migration.id} --stop" in refused.err
    followed = await shell("verify", migration.id, "--path", "/admin", "--no-wait")
    assert (followed.code, "is running already; this shows it" in followed.err) == (0, True)
    for workflow_id in (migration.id, verification_id(migration.id)):
        await shell.client.get_workflow_handle(workflow_id).terminate()


async def test_the_phase_is_known_without_search_attributes(shell: Shell) -> None:
    """The migration itself says where it is, if the namespace lacks them."""
    input = {"cluster": "bare", "source": "zk:zk:2181", "target": "oxia://oxia:6648"}
    async with small_worker(shell.client):
        migration = await shell.client.start_workflow(
            "MetadataStoreMigration", input, id="metadata-store/bare", task_queue=TASK_QUEUE
        )
        await shell.status_with(migration.id, lambda view: view["status"]["waiting"])
        # The worker of this test sets the attribute.
        for ended in (False, True):
            if ended:
                await migration.terminate()
            described = await migration.describe()
            described.search_attributes = {}
            for last_phase in (context.last_phase, verification.last_phase):
                assert await last_phase(shell.client, described) == "WORK"
