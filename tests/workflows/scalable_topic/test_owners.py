"""The state of the migration that holds a cluster, as a real Temporal server reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from temporalio.client import Client

from activities.lifecycle.runtime import Runtime
from activities.scalable_topic import context
from activities.scalable_topic.context import Owners
from clients.errors import ClaimHeld, StoreUnreachable
from models.lifecycle.claim import Claim
from models.lifecycle.status import WaitKind
from models.settings import Settings
from models.store_url import parse_store_url
from tests.support.clients.proxy import Proxy
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness
from tests.workflows.scalable_topic.activities import Script

_STORE = parse_store_url("zk:zk:2181/pulsar")


async def _is_open(client: Client, workflow_id: str, run_id: str) -> bool:
    """Ask from a thread, like the steps."""
    owners = Owners(Runtime(Settings(), client, "", asyncio.get_running_loop()))
    return await asyncio.to_thread(owners.is_open, Claim(workflow_id=workflow_id, run_id=run_id), _STORE)


async def test_a_migration_that_runs(stage: Harness) -> None:
    """The run that took a claim is open until it ends, and another run does not count as the same."""
    hang = Hang()
    run = await stage.start(Script(precheck=hang))
    run_id = run.handle.first_execution_run_id or ""
    await hang.entered()
    assert await _is_open(stage.client, run.handle.id, run_id)
    assert not await _is_open(stage.client, run.handle.id, "7a5d3b5e-6a0e-4f0c-8f39-7f7e6c7d2a11")
    hang.release()
    await run.report()
    assert not await _is_open(stage.client, run.handle.id, run_id)


async def test_a_migration_that_was_terminated(stage: Harness) -> None:
    """The claim of a terminated run may be taken over."""
    run = await stage.start(Script(), hold_before_cutover=True)
    run_id = run.handle.first_execution_run_id or ""
    # Not during a step: of those the test server keeps its clock locked indefinitely.
    await run.until(lambda status: status.waiting is not None and status.waiting.kind is WaitKind.HOLD)
    assert await _is_open(stage.client, run.handle.id, run_id)
    await run.handle.terminate()
    assert not await _is_open(stage.client, run.handle.id, run_id)


async def test_a_migration_in_many_runs(stage: Harness) -> None:
    """Continued runs count as the run that took the claim."""
    hang = Hang()
    run = await stage.start(Script(guard=hang), history_limit=3)
    await hang.entered()
    assert await run.runs() > 1
    assert await _is_open(stage.client, run.handle.id, run.handle.first_execution_run_id or "")
    hang.release()
    await run.report()


async def test_a_migration_that_temporal_does_not_know(stage: Harness) -> None:
    """A claim of an unknown workflow is not taken over, since it may run under another Temporal."""
    with pytest.raises(ClaimHeld, match="scalable-topic/elsewhere"):
        await _is_open(stage.client, "scalable-topic/elsewhere", "1")


async def test_a_migration_of_another_kind(stage: Harness) -> None:
    """A claim of another kind of migration is never taken over, whether it runs or not."""
    with pytest.raises(ClaimHeld, match="metadata-store/c"):
        await _is_open(stage.client, "metadata-store/c", "1")


@pytest.mark.parametrize("away", [Proxy.silence, Proxy.cut])
async def test_temporal_does_not_answer(
    stage: Harness, monkeypatch: pytest.MonkeyPatch, away: Callable[[Proxy], None]
) -> None:
    """Without an answer no claim is taken over, and the caller retries."""
    monkeypatch.setattr(context, "_RPC_TIMEOUT", 0.5)
    with Proxy(stage.client.service_client.config.target_host) as link:
        client = await Client.connect(link.address)
        away(link)
        with pytest.raises(StoreUnreachable, match="does not say whether scalable-topic/c runs"):
            await _is_open(client, "scalable-topic/c", "1")
