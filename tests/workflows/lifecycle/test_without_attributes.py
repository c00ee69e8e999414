"""Temporal without the right to add search attributes: everything works without them, and one warning says so.

The server is Temporal's own. A proxy before it refuses OperatorService, as Temporal Cloud and authorizers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from cli.commands.history import replay
from cli.doctor.temporal import temporal_findings
from models.lifecycle.names import SEARCH_ATTRIBUTES, TASK_QUEUE
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.input import KIND, MetadataStoreInput
from process.exit_codes import CommandFailed, ExitCode
from pulsar_devstack.servers.stack import StackSpec
from temporal.client import start_workflow
from temporal.converter import DATA_CONVERTER
from temporal.search_attributes import missing_search_attributes, register_for_server, register_search_attributes
from tests.support.lifecycle.refusing_proxy import OPERATOR_SERVICE, refusing_proxy
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import IDENTITY, failed_tasks, with_workers
from tests.workflows.metadata_store.activities import PLAN, Script

_CREATE = "temporal operator search-attribute create --namespace default"


class Server(NamedTuple):
    """A Temporal server without search attributes of migrations.

    Attributes:
        address: its own address.
        direct: client with all rights.
        proxied: address of the proxy.
        client: client of the proxy.
        refusals: methods that the proxy has refused.
    """

    address: str
    direct: Client
    proxied: str
    client: Client
    refusals: list[str]


@pytest.fixture(scope="module")
async def server(make_stack: MakeStack) -> AsyncIterator[Server]:
    """Temporal's dev server, and a proxy in front that refuses OperatorService."""
    stack = await asyncio.to_thread(make_stack, StackSpec(temporal=True))
    async with refusing_proxy(stack.temporal_address) as (proxied, refusals):
        direct = await Client.connect(stack.temporal_address, data_converter=DATA_CONVERTER, identity=IDENTITY)
        client = await Client.connect(proxied, data_converter=DATA_CONVERTER, identity=IDENTITY)
        yield Server(stack.temporal_address, direct, proxied, client, refusals)


async def _upserted(handle: WorkflowHandle[Any, Any]) -> set[str]:
    """Return the search attributes that a run has set; Temporal's SDK sets one of its own for each marker."""
    return {
        name
        for event in (await handle.fetch_history()).events
        for name in event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    }


async def test_names_are_found_without_the_service(server: Server) -> None:
    """Without OperatorService a name is known to be missing, or to exist, by a query that counts workflows."""
    assert await missing_search_attributes(server.client) == SEARCH_ATTRIBUTES
    registration = await register_search_attributes(server.client)
    assert (registration.added, registration.missing) == ((), SEARCH_ATTRIBUTES)
    assert registration.cause == "Request unauthorized."
    assert {"ListSearchAttributes", "AddSearchAttributes"} <= {*server.refusals}


async def test_a_server_process_warns_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A worker or gateway that cannot add search attributes logs one warning, with the command that adds them."""
    with caplog.at_level(logging.INFO, "temporal"):
        await register_for_server(server.client)
    # Python may report at any time what an earlier test has left.
    [record] = [record for record in caplog.records if record.name.startswith("temporal.")]
    assert record.levelno == logging.WARNING
    command = " ".join(f"--name {name} --type Keyword" for name in SEARCH_ATTRIBUTES)
    assert f"{_CREATE} {command}" in record.getMessage()


async def test_a_whole_migration(server: Server, tmp_path: Path) -> None:
    """A migration runs to its end without search attributes, takes verbs, and its history replays."""
    async with with_workers(WorkflowEnvironment.from_client(server.client), attributes_missing=True) as stage:
        run = await stage.start(Script())
        await run.until(lambda status: "window" in status.deadlines)
        assert (await run.steer(Verb.PROCEED)).accepted
        assert (await run.report()).outcome is Outcome.DONE
    assert await _upserted(run.handle) == {"TemporalChangeVersion"}
    assert failed_tasks((await run.handle.fetch_history()).events) == []
    file = tmp_path / "history.json"
    file.write_text((await run.handle.fetch_history()).to_json())
    assert await asyncio.to_thread(replay, [file]) == {file: ""}


async def test_a_worker_with_other_knowledge_continues(server: Server) -> None:
    """A run that began without search attributes continues so, also on a worker that takes them for there."""
    held = Hang()
    async with with_workers(WorkflowEnvironment.from_client(server.client), attributes_missing=True) as stage:
        run = await stage.start(Script(pre_copy=held), validation_window="PT0S")
        await held.entered()
    async with with_workers(WorkflowEnvironment.from_client(server.client)) as stage:
        stage.play(run.handle.id.partition("/")[2], Script())
        assert (await run.report()).outcome is Outcome.DONE
    assert await _upserted(run.handle) == {"TemporalChangeVersion"}


async def test_a_start_leaves_them_out(server: Server) -> None:
    """A start of the command line or gateway works in a namespace without the search attributes."""
    input = MetadataStoreInput.model_validate({"hold_before_cutover": False, **PLAN, "cluster": "left-out"})
    handle = await start_workflow(server.client, "MetadataStoreMigration", input, kind=KIND, queue=TASK_QUEUE)
    described = await handle.describe()
    assert not {*SEARCH_ATTRIBUTES} & {*described.search_attributes}
    await handle.terminate()


async def test_doctor_warns(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` warns of missing search attributes, also where it may not list them."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.proxied)
    findings = await asyncio.to_thread(temporal_findings, TASK_QUEUE)
    [finding] = [finding for finding in findings if finding.subject == "search attributes"]
    assert "are missing" in finding.detail
    assert _CREATE in finding.cure


@pytest.mark.parametrize("status", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED])
async def test_attributes_that_an_administrator_added(server: Server, status: grpc.StatusCode) -> None:
    """If an administrator has added them, a migration sets search attributes without any right to list them."""
    await register_search_attributes(server.direct)
    try:
        async with refusing_proxy(server.address, status=status) as (proxied, _):
            client = await Client.connect(proxied, data_converter=DATA_CONVERTER, identity=IDENTITY)
            async with asyncio.timeout(120):
                while await missing_search_attributes(client):  # noqa: ASYNC110 - Temporal announces nothing
                    await asyncio.sleep(0.2)
            async with with_workers(WorkflowEnvironment.from_client(client)) as stage:
                run = await stage.start(Script(), validation_window="PT0S")
                assert (await run.report()).outcome is Outcome.DONE
                described = await run.handle.describe()
                assert {*SEARCH_ATTRIBUTES} <= {*described.search_attributes}
    finally:
        request = RemoveSearchAttributesRequest(namespace="default", search_attributes=SEARCH_ATTRIBUTES)
        await server.direct.operator_service.remove_search_attributes(request)


async def test_no_right_to_read(server: Server) -> None:
    """Credentials that may not even read the namespace are a usage error, which names the setting."""
    refused = (OPERATOR_SERVICE, "/temporal.api.workflowservice.v1.WorkflowService/CountWorkflowExecutions")
    async with refusing_proxy(server.address, refused=refused) as (proxied, _):
        client = await Client.connect(proxied)
        with pytest.raises(CommandFailed, match="refuses to count workflows") as failure:
            await missing_search_attributes(client)
    assert failure.value.code is ExitCode.USAGE
