"""The client of Temporal: connect by Temporal's own variables and profiles, and start workflows."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

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
from models.lifecycle.names import keyword, summary_line
from models.redaction import remember
from models.text import shown
from process.exit_codes import CommandFailed, ExitCode
from process.logs import CORE_LOGGER
from temporal.caller import NamesSender, server_identity, user_identity
from temporal.codec import data_converter
from temporal.tracing import tracing

DEFAULT_TARGET = "127.0.0.1:7233"
"""Where the `temporal` CLI connects to as well when nothing is configured."""

# Names of reasons in errors of rustls, which the SDK uses.
_CERTIFICATE = re.compile(r"InvalidCertificate\((\w+)")
_CERTIFICATE_FAULTS = {
    "Expired": "it has expired",
    "ExpiredContext": "it has expired",
    "NotValidForName": "it is another host's",
    "NotValidForNameContext": "it is another host's",
    "UnknownIssuer": "its issuer is not trusted",
}

ANSWER_LIMIT = timedelta(seconds=10)
"""Longest wait for one answer of Temporal."""


def connect_config() -> ClientConnectConfig:
    """Return the configuration from Temporal's environment variables and profiles.

    Raises:
        CommandFailed: the configuration does not exist, cannot be read, or names a profile that does not exist.
    """
    file = os.environ.get("TEMPORAL_CONFIG_FILE")
    # The SDK takes no profile then, and connects without its address, namespace and key.
    if file and not Path(file).exists():
        cause = f"Temporal's configuration: {file} does not exist."
        raise CommandFailed(ExitCode.USAGE, cause, "correct TEMPORAL_CONFIG_FILE, or unset it")
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


async def connect(runtime: Runtime | None = None, *, traced_as: str = "") -> Client:
    """Connect to Temporal; signals and updates then name their sender.

    Args:
        runtime: the SDK's runtime of a process that serves; None for a command, whose identity names its user.
        traced_as: name of the process in traces, which are off unless an address for them is set; empty for no traces.

    Raises:
        CommandFailed: the configuration or the payload codec is wrong, the libraries for traces are missing, or the
            server does not answer.
    """
    config = connect_config()
    identity = user_identity() if runtime is None else server_identity()
    target, converter = config.get("target_host", DEFAULT_TARGET), data_converter()
    traces = tracing(traced_as) if traced_as else []
    try:
        async with asyncio.timeout(ANSWER_LIMIT.total_seconds()):
            return await Client.connect(
                **config,
                data_converter=converter,
                identity=identity,
                interceptors=[NamesSender(identity), *traces],
                runtime=runtime or runtime_without_logs(),
            )
    except (RuntimeError, OSError, ValueError) as error:
        cause = _short(str(error)) or f"no answer in {ANSWER_LIMIT.total_seconds():.0f} s"
        text = f"no connection to Temporal at {target}: {cause}."
        raise CommandFailed(ExitCode.UNREACHABLE, text, _cure(str(error))) from error


def server_runtime(metrics_address: str, setting: str = "PULSAR_MIGRATE_METRICS_ADDRESS") -> Runtime:
    """Return the SDK's runtime of a process that serves: metrics for Prometheus, and its native logs in ours.

    Args:
        metrics_address: `host:port`, or empty for no metrics.
        setting: variable with the address, for errors.

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
        cure = f"set {setting} to a free host:port, or to nothing for no metrics"
        raise CommandFailed(ExitCode.USAGE, f"metrics at {metrics_address}: {error}.", cure) from error


async def start_workflow(
    client: Client, workflow: str, input: WorkflowInput, *, kind: str, queue: str
) -> WorkflowHandle[Any, Any]:
    """Start a workflow, with search attributes where the namespace has them, so that lists find it at once.

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
    typed = TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in attributes.items()]
    )

    async def start(search_attributes: TypedSearchAttributes) -> WorkflowHandle[Any, Any]:
        return await client.start_workflow(
            workflow,
            input.as_json(),
            id=input.workflow_id,
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=search_attributes,
            static_summary=summary_line(input.summary),
            # The SDK tries again with the same request id, which starts it once.
            rpc_timeout=ANSWER_LIMIT,
        )

    try:
        return await start(typed)
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        # The namespace may lack them. If something else is wrong, the second answer says so.
        return await start(TypedSearchAttributes.empty)


def is_silent(error: RPCError) -> bool:
    """Return whether Temporal did not answer, and so did not refuse."""
    return error.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}


def _short(message: str) -> str:
    """Return the operating system's, gRPC's or TLS' message from the nested native error."""
    if refused := _CERTIFICATE.search(message):
        fault = refused[1]
        return f"its certificate is refused: {_CERTIFICATE_FAULTS.get(fault, fault)}"
    quoted = re.findall(r'(?:message|error): "([^"]+)"', message)
    return quoted[-1] if quoted else shown(message).rstrip(".")


def _cure(message: str) -> str:
    if _CERTIFICATE.search(message):
        return "correct it, or set TEMPORAL_TLS_SERVER_CA_CERT_PATH or TEMPORAL_TLS_SERVER_NAME"
    # The errors of a server that wants TLS, or a certificate of ours, are those of many other faults.
    return "start the server (`temporal server start-dev`), or set TEMPORAL_ADDRESS, TEMPORAL_TLS_* or TEMPORAL_PROFILE"
