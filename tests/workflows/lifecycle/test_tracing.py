"""Traces: a worker sends the spans of a migration to a collector of OpenTelemetry."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,  # pyright: ignore[reportUnknownVariableType] - generated without types
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from cli.commands.history import replay
from models.lifecycle.status import Outcome
from models.redaction import HIDDEN, redacted, remember
from process.exit_codes import CommandFailed, ExitCode
from process.lifetime import finish
from pulsar_devstack.servers.stack import StackSpec
from temporal.client import connect, server_runtime
from temporal.search_attributes import register_search_attributes
from temporal.tracing import ENDPOINTS, HEADERS_FILE, tracing
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.harness import with_workers
from tests.workflows.metadata_store.activities import Script

SECRET = "a-planted-secret-of-the-store"
_LIMIT = 120.0


class Collector(TraceServiceServicer):
    """A collector of OpenTelemetry that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[tuple[str, str]] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        """Keep spans."""
        self.headers += context.invocation_metadata()
        self.requests.append(request)
        return ExportTraceServiceResponse()

    @property
    def spans(self) -> dict[str, list[Span]]:
        """Spans by their name."""
        spans: dict[str, list[Span]] = {}
        for request in self.requests:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        spans.setdefault(span.name, []).append(span)
        return spans

    @property
    def services(self) -> set[str]:
        """Names of the processes that sent spans."""
        resources = [resource.resource for request in self.requests for resource in request.resource_spans]
        values = [value for resource in resources for value in resource.attributes]
        return {value.value.string_value for value in values if value.key == "service.name"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[Collector]:
    """A collector to which processes send spans."""
    served = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(served, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv(ENDPOINTS[0], f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    yield served
    server.stop(0).wait()


async def test_spans_of_a_migration(
    collector: Collector, make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The steps of a migration are spans of one trace, without secrets; its history replays without traces."""
    stack = await asyncio.to_thread(make_stack, StackSpec(temporal=True))
    monkeypatch.setenv("TEMPORAL_ADDRESS", stack.temporal_address)
    remember(SECRET)
    client = await connect(server_runtime(metrics_address=""), traced_as="pulsar-migrate-worker")
    await register_search_attributes(client)
    first = ApplicationError(f"the store is down: {SECRET}")
    async with with_workers(WorkflowEnvironment.from_client(client)) as stage:
        run = await stage.start(Script(pre_copy=[first, Script.usual["pre_copy"]]), validation_window="PT0S")
        assert (await run.report(_LIMIT)).outcome is Outcome.DONE
        history = (await run.handle.fetch_history()).to_json()
    await asyncio.to_thread(finish)
    async with asyncio.timeout(_LIMIT):
        while "CompleteWorkflow:MetadataStoreMigration" not in collector.spans:  # noqa: ASYNC110 - it arrives by gRPC
            await asyncio.sleep(0.05)
    spans = collector.spans
    [start] = spans["StartWorkflow:MetadataStoreMigration"]
    copies = spans["RunActivity:metadata_store_pre_copy"]
    [order] = spans["StartActivity:metadata_store_pre_copy"]
    assert [copy.parent_span_id for copy in copies] == [order.span_id, order.span_id]
    assert sorted(copy.status.message for copy in copies) == ["", f"ApplicationError: the store is down: {HIDDEN}"]
    assert {span.trace_id for span in (*spans["RunWorkflow:MetadataStoreMigration"], *copies)} == {start.trace_id}
    assert collector.services == {"pulsar-migrate-worker"}
    text = " ".join(str(request) for request in collector.requests)
    assert SECRET not in text

    monkeypatch.delenv(ENDPOINTS[0])
    file = tmp_path / "traced.json"
    file.write_text(history)
    assert await asyncio.to_thread(replay, [file]) == {file: ""}


def test_headers_are_in_a_file(collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The collector gets the headers of the file, and no message of this process has their values."""
    file = tmp_path / "headers"
    file.write_text("authorization=Bearer%20planted-token-of-the-collector\nx-tenant=acme-and-sons\n")
    monkeypatch.setenv(HEADERS_FILE, str(file))
    [interceptor] = tracing("pulsar-migrate-worker")
    assert isinstance(interceptor, TracingInterceptor)
    interceptor.tracer.start_span("a step").end()
    finish()
    assert {("authorization", "Bearer planted-token-of-the-collector"), ("x-tenant", "acme-and-sons")} <= {
        *collector.headers
    }
    assert redacted("planted-token-of-the-collector of acme-and-sons") == f"{HIDDEN} of acme-and-sons"
    monkeypatch.setenv(HEADERS_FILE, str(tmp_path / "none"))
    with pytest.raises(CommandFailed, match="none cannot be read") as failed:
        tracing("pulsar-migrate-worker")
    assert failed.value.code is ExitCode.USAGE


def test_traces_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address, nothing is traced."""
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert tracing("pulsar-migrate-worker") == []


def test_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an address and without the libraries, the process does not start, and says what to install."""
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:4317")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(CommandFailed, match=r"install pulsar-migrate\[otel\]") as failed:
        tracing("pulsar-migrate-worker")
    assert failed.value.code is ExitCode.USAGE
