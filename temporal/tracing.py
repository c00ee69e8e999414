"""Traces of workflows and steps with OpenTelemetry: off unless an address for them is set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from temporalio.client import Interceptor

from models.redaction import redacted, remember
from process.exit_codes import CommandFailed, ExitCode
from process.lifetime import before_leaving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import AttributeValue

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's variables with the address of a collector; one of them turns traces on."""

HEADERS_FILE = "OTEL_EXPORTER_OTLP_HEADERS_FILE"
"""Our own variable: a file with what OTEL_EXPORTER_OTLP_HEADERS would have, since a header may be a token."""

# Parts of names of headers with a secret.
_SECRET = ("auth", "key", "secret", "token")
_FLUSH_MILLISECONDS = 3_000
"""Longest wait for the last spans when the process ends."""


def tracing(service: str) -> list[Interceptor]:
    """Return the interceptor of a client that traces its calls, and all of its workers; none if traces are off.

    Args:
        service: name of the process, unless OTEL_SERVICE_NAME is set.

    Raises:
        CommandFailed: the libraries for traces are missing, or the file of headers cannot be read.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return []
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        cause = f"{ENDPOINTS[0]} is set, and the libraries for traces are missing ({error.name})."
        cure = "install pulsar-migrate[otel], or unset the variable"
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error
    return [tracing_to(OTLPSpanExporter(headers=_headers()), service)]


def _headers() -> str | None:
    """Return the headers of the file; None without one, for those of OpenTelemetry's variable."""
    if not (file := os.environ.get(HEADERS_FILE)):
        return None
    try:
        headers = [line.strip() for line in Path(file).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        cause = f"{HEADERS_FILE}: {file} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})"
        cure = "name a file with lines such as authorization=Bearer%20TOKEN"
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error
    for header in headers:
        name, _, value = header.partition("=")
        # The library logs a header that it cannot use. Others, such as a tenant, are names that messages need.
        if any(word in name.lower() for word in _SECRET):
            remember(value, unquote(value).rpartition(" ")[2], permanent=True)
    # Between commas, as in the variable.
    return ",".join(filter(None, headers))


def tracing_to(exporter: SpanExporter, service: str) -> Interceptor:
    """Return the interceptor that sends spans to an exporter, without secrets of this process."""
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from temporalio.contrib.opentelemetry import TracingInterceptor

    resource = Resource.create({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(_redacting(exporter)))
    before_leaving(lambda: provider.force_flush(_FLUSH_MILLISECONDS))
    # Spans of workflows too that the `temporal` command line has started, which sends no span of its own.
    return TracingInterceptor(provider.get_tracer("pulsar-migrate"), always_create_workflow_spans=True)


def _redacting(exporter: SpanExporter) -> SpanExporter:
    """Return an exporter that removes secrets: a span of a failed step has the error and its traceback."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Redacting(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return exporter.export([_without_secrets(span) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Redacting()


def _without_secrets(span: ReadableSpan) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Status

    status = span.status
    return ReadableSpan(
        name=redacted(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_redacted(span.attributes),
        events=[Event(event.name, _redacted(event.attributes), event.timestamp) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(status.status_code, redacted(status.description) if status.description else None),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _redacted(attributes: Mapping[str, AttributeValue] | None) -> dict[str, AttributeValue]:
    return {name: redacted(value) if isinstance(value, str) else value for name, value in (attributes or {}).items()}
