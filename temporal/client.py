"""The client of Temporal: connect by Temporal's own variables and profiles, register search attributes, start."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from functools import cache
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from models.lifecycle.input import WorkflowInput
from models.lifecycle.names import SEARCH_ATTRIBUTES, keyword, summary_line
from models.redaction import remember
from models.text import shown
from process.exit_codes import CommandFailed, ExitCode
from process.logs import CORE_LOGGER
from temporal.codec import data_converter

DEFAULT_TARGET = "127.0.0.1:7233"
"""Where the `temporal` CLI connects to as well when nothing is configured."""

ANSWER_LIMIT = timedelta(seconds=10)
"""Longest wait for one answer of Temporal."""

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_log = logging.getLogger(__name__)


def connect_config() -> ClientConnectConfig:
    """Return the configuration from Temporal's environment variables and profiles.

    Raises:
        CommandFailed: the configuration cannot be read, or names a profile that does not exist.
    """
    try:
        config = ClientConfig.load_client_connect_config()
    # The SDK raises a type of its own here that it does not export.
    except Exception as error:
        cause = " ".join(str(error).split())
        cure = "check TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE and the file that it names"
        raise CommandFailed(ExitCode.USAGE, f"Temporal's configuration: {cause}.", cure) from error
    if not config.get("target_host"):
        config["target_host"] = DEFAULT_TARGET
    remember(*_secrets(config), permanent=True)
    return config


def _secrets(config: ClientConnectConfig) -> list[str]:
    headers = (config.get("rpc_metadata") or {}).items()
    values = [config.get("api_key") or "", *(value for name, value in headers if name.lower() == "authorization")]
    tls = config.get("tls")
    key = tls.client_private_key if isinstance(tls, TLSConfig) else None
    return [*values, (key or b"").decode(errors="replace")]


@cache
def runtime_without_logs() -> Runtime:
    """Return the SDK's runtime of a short command, whose native logs would mix with answers on standard output.

    It is created once for each process: a replay hung when the previous runtime was freed (temporalio 1.31, seen).
    """
    return Runtime(telemetry=TelemetryConfig(logging=None))


async def connect(runtime: Runtime | None = None) -> Client:
    """Connect to Temporal.

    Args:
        runtime: the SDK's runtime; by default the one without native logs.

    Raises:
        CommandFailed: the configuration or the payload codec is wrong, or the server does not answer.
    """
    config = connect_config()
    target, converter = config.get("target_host", DEFAULT_TARGET), data_converter()
    try:
        async with asyncio.timeout(ANSWER_LIMIT.total_seconds()):
            return await Client.connect(**config, data_converter=converter, runtime=runtime or runtime_without_logs())
    except (RuntimeError, OSError, ValueError) as error:
        cause = _short(str(error)) or f"no answer in {ANSWER_LIMIT.total_seconds():.0f} s"
        raise CommandFailed(
            ExitCode.UNREACHABLE,
            f"no connection to Temporal at {target}: {cause}.",
            "start the server (`temporal server start-dev`), or set TEMPORAL_ADDRESS or TEMPORAL_PROFILE",
        ) from error


async def connect_server(metrics_address: str = "") -> Client:
    """Connect a process that serves, and register the search attributes that migrations set.

    Args:
        metrics_address: as `server_runtime` takes it.

    Raises:
        CommandFailed: as `connect`, `server_runtime` and `register_search_attributes`.
    """
    client = await connect(server_runtime(metrics_address))
    if added := await register_search_attributes(client):
        _log.info("registered the search attributes %s", ", ".join(added))
    return client


def server_runtime(metrics_address: str) -> Runtime:
    """Return the SDK's runtime of a process that serves: metrics for Prometheus, and its native logs in ours.

    Args:
        metrics_address: `host:port`, or empty for no metrics.

    Raises:
        CommandFailed: the address is not one, or is taken.
    """
    prometheus = PrometheusConfig(
        bind_address=metrics_address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    logs = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=logging.getLogger(CORE_LOGGER)),
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logs, metrics=prometheus if metrics_address else None))
    except ValueError as error:
        cure = "set PULSAR_MIGRATE_METRICS_ADDRESS to a free host:port, or to nothing for no metrics"
        raise CommandFailed(ExitCode.USAGE, f"metrics at {metrics_address}: {error}.", cure) from error


async def start_workflow(
    client: Client, workflow: str, input: WorkflowInput, *, kind: str, queue: str
) -> WorkflowHandle[Any, Any]:
    """Start a workflow, which lists find by its search attributes at once.

    Args:
        client: of Temporal.
        workflow: its type.
        input: of it; also gives its id and summary.
        kind: value of the search attribute `MigrationKind`.
        queue: of its workers.

    Raises:
        WorkflowAlreadyStartedError: it runs. Another policy would return that run as if this call had started it.
        RPCError: Temporal does not answer.
    """
    attributes = {"MigrationKind": kind, "MigrationTarget": keyword(input.target_name)}
    return await client.start_workflow(
        workflow,
        input.as_json(),
        id=input.workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in attributes.items()]
        ),
        static_summary=summary_line(input.summary),
        # The SDK tries again with the same request id, which starts it once.
        rpc_timeout=ANSWER_LIMIT,
    )


def is_silent(error: RPCError) -> bool:
    """Return whether Temporal did not answer, and so did not refuse."""
    return error.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}


async def register_search_attributes(client: Client) -> tuple[str, ...]:
    """Register those search attributes of migrations that the namespace lacks; return their names.

    Without them a workflow that sets one would be retried indefinitely and show nothing but a warning in a log.

    Raises:
        CommandFailed: one has another type, or the right to add is missing; the message holds the command that adds.
    """
    missing = await missing_search_attributes(client)
    if missing:
        await _add(client, missing)
    return missing


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """Return the search attributes of migrations that the namespace lacks.

    Raises:
        CommandFailed: one has another type, or they cannot be listed.
    """
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=ANSWER_LIMIT
        )
    except RPCError as error:
        raise _not_registered(client, SEARCH_ATTRIBUTES, "cannot be listed", error) from error
    there = dict(listed.custom_attributes)
    for name in SEARCH_ATTRIBUTES:
        if there.get(name, _KEYWORD) != _KEYWORD:
            cure = f"temporal operator search-attribute remove --namespace {client.namespace} --name {name} --yes"
            raise CommandFailed(ExitCode.CONFLICT, f"search attribute {name} exists, but is not a Keyword.", cure)
    return tuple(name for name in SEARCH_ATTRIBUTES if name not in there)


async def _add(client: Client, names: tuple[str, ...]) -> None:
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=dict.fromkeys(names, _KEYWORD))
    try:
        await client.operator_service.add_search_attributes(request, timeout=ANSWER_LIMIT)
    except RPCError as error:
        # Workers that start together register the same names.
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise _not_registered(client, names, "are missing and cannot be added", error) from error


def create_line(namespace: str, names: tuple[str, ...]) -> str:
    """Return the `temporal` command that registers them."""
    listed = " ".join(f"--name {name} --type Keyword" for name in names)
    return f"temporal operator search-attribute create --namespace {namespace} {listed}"


def _not_registered(client: Client, names: tuple[str, ...], what: str, error: RPCError) -> CommandFailed:
    if is_silent(error):
        cause = f"Temporal does not answer: {error.message}."
        return CommandFailed(ExitCode.UNREACHABLE, cause, "check TEMPORAL_ADDRESS and the server")
    cause = f"search attributes {', '.join(names)} {what}: {error.message}."
    return CommandFailed(ExitCode.USAGE, cause, f"run with the right to add: {create_line(client.namespace, names)}")


def _short(message: str) -> str:
    """Return the operating system's or gRPC's message from the nested native error."""
    quoted = re.findall(r'(?:message|error): "([^"]+)"', message)
    return quoted[-1] if quoted else shown(message).rstrip(".")
