"""The connection to Temporal, by Temporal's own environment variables and profiles."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from functools import cache

from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from process.exit_codes import CommandFailed, ExitCode
from process.logs import CORE_LOGGER
from temporal.converter import DATA_CONVERTER

DEFAULT_TARGET = "127.0.0.1:7233"
"""Where the `temporal` CLI connects to as well when nothing is configured."""

ANSWER_LIMIT = timedelta(seconds=10)
"""Longest wait for one answer of Temporal."""


def connect_config() -> ClientConnectConfig:
    """What Temporal's environment variables and profiles say.

    Raises:
        CommandFailed: they cannot be read, or name a profile that does not exist.
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
    return config


@cache
def quiet_runtime() -> Runtime:
    """Return the SDK's runtime of a short command, whose native logs would mix with answers on standard output.

    One for the life of the process: a replay hung when the runtime of the one before was freed (temporalio 1.31, seen).
    """
    return Runtime(telemetry=TelemetryConfig(logging=None))


async def connect(runtime: Runtime) -> Client:
    """Connect to Temporal.

    Raises:
        CommandFailed: the configuration is wrong, or nobody answers.
    """
    config = connect_config()
    target = config.get("target_host", DEFAULT_TARGET)
    try:
        async with asyncio.timeout(ANSWER_LIMIT.total_seconds()):
            return await Client.connect(**config, data_converter=DATA_CONVERTER, runtime=runtime)
    except (RuntimeError, OSError, ValueError) as error:
        cause = _short(str(error)) or f"no answer in {ANSWER_LIMIT.total_seconds():.0f} s"
        raise CommandFailed(
            ExitCode.UNREACHABLE,
            f"no connection to Temporal at {target}: {cause}.",
            "start the server (`temporal server start-dev`), or set TEMPORAL_ADDRESS or TEMPORAL_PROFILE",
        ) from error


def worker_runtime(metrics_address: str) -> Runtime:
    """The SDK's runtime of a worker's process: metrics for Prometheus, and its native logs in ours.

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


def _short(message: str) -> str:
    """The operating system's or gRPC's own words out of the nested native error."""
    quoted = re.findall(r'(?:message|error): "([^"]+)"', message)
    return quoted[-1] if quoted else " ".join(message.split())[:200].rstrip(".")
