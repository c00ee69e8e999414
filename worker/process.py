"""The worker process: start-up, serving, shutdown."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.lifecycle.progress import HEARTBEAT_THROTTLE
from models.lifecycle.names import observers_queue
from models.redaction import remember
from models.settings import Settings
from process.exit_codes import CommandFailed, ExitCode, leave
from process.lifetime import report_ready, serve_and_leave, stop_on_signals, withdraw
from process.logs import configure_logs
from process.memory import protect_memory
from spark.environment import preset_spark_env
from spark.protection import check_protection
from temporal.client import connect, server_runtime
from temporal.sandbox import WORKFLOW_RUNNER
from temporal.search_attributes import register_for_server
from worker import catalog as migrations
from worker.interceptor import WorkflowInterceptor

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime


ACTIVITIES = 200
"""Most activities at once on each queue: more than one worker's migrations, so that a step that blocks or unblocks
writes never waits for a long copy. Each costs a thread; more expensive resources are limited where they are used, as
Spark's slots are."""

THREADS = 2 * ACTIVITIES + 16
"""Activities block threads of the loop's default pool; Python's default would be six threads on two cores."""

OBSERVERS = 10_000
"""Most observers at once: they run as long as nothing changes, and cost almost nothing between two checks."""

GRACE = timedelta(seconds=5)
"""How long running steps may continue after the signal to stop; then they are cancelled, and another worker resumes."""

SHUTDOWN_TIMEOUT = timedelta(seconds=20)
"""Longest orderly shutdown; Kubernetes kills after 30 s by default."""

_log = logging.getLogger(__name__)


def run_worker(settings: Settings, *, ready_file: Path | None = None) -> NoReturn:
    """Serve the task queue until SIGTERM (exit code 0), SIGINT (130) or a failure, then end the process.

    Args:
        settings: settings of this process.
        ready_file: file that exists while the worker is ready; it holds the readiness line.

    Raises:
        CommandFailed: the log format is unknown, credentials have no list of hosts, or Spark is not protected; later
            failures end the process with their exit code.
    """
    remember(*settings.secrets, permanent=True)
    try:
        settings.check_hosts()
    except ValueError as error:
        cure = "set it to the hosts of the cluster, separated by commas; `pulsar-migrate doctor` prints the line"
        raise CommandFailed(ExitCode.USAGE, str(error), cure) from None
    try:
        check_protection(settings)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "or set PULSAR_MIGRATE_SPARK_MASTER=local[*]") from None
    # Before there are other threads. The fault handler prints where native code crashed.
    preset_spark_env()
    protect_memory()
    faulthandler.enable()
    configure_logs()
    # The lines have fields for it.
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False
    asyncio.run(serve_and_leave(_serve(settings, ready_file), ready_file, "worker"))
    leave(ExitCode.UNEXPECTED)


async def _serve(settings: Settings, ready_file: Path | None) -> ExitCode:
    began = time.monotonic()
    stop = stop_on_signals()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="step"))
    client = await connect(server_runtime(settings.metrics_address), traced_as="pulsar-migrate-worker")
    registration = await register_for_server(client)
    # The random part tells a restarted container from the one before, which had the same host and pid.
    own_queue = f"{settings.task_queue}@{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    from activities.lifecycle.runtime import Runtime

    runtime = Runtime(settings, client, own_queue, asyncio.get_running_loop())
    # Not awaited: a step that unblocks writes needs no Spark and must not wait for it.
    starting = asyncio.create_task(_start(runtime))
    own = WorkflowInterceptor(attributes_missing=bool(registration.missing))
    workers = _workers(client, settings, own_queue, migrations.activities(runtime), own)
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    _report_ready(client, settings, ready_file, time.monotonic() - began)
    await _wait_for_first_exit([stop, *runs], starting)
    withdraw(ready_file)
    await _shut_down(workers, runs, runtime)
    if starting.done():
        # Raise the error of a failed start of Spark.
        starting.result()
    return stop.result() if stop.done() else ExitCode.UNEXPECTED


async def _wait_for_first_exit(long_running: Sequence[asyncio.Future[Any]], starting: asyncio.Task[None]) -> None:
    """Wait until a long-running task ends, or Spark has failed to start."""
    await asyncio.wait([*long_running, starting], return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and not starting.exception():
        await asyncio.wait(long_running, return_when=asyncio.FIRST_COMPLETED)


async def _start(runtime: Runtime) -> None:
    from pyspark.errors import PySparkRuntimeError

    began = time.monotonic()
    try:
        await asyncio.to_thread(runtime.start)
    except PySparkRuntimeError as error:
        cause = f"Spark did not start ({runtime.settings.spark_master}): {' '.join(str(error).split())}."
        cure = "put Java 17 or newer on the PATH or set JAVA_HOME, and see the lines above"
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error
    _log.info("Spark is ready after %.1f s", time.monotonic() - began)


def _workers(
    client: Client,
    settings: Settings,
    own_queue: str,
    activities: Sequence[Callable[..., Any]],
    interceptor: WorkflowInterceptor,
) -> list[Worker]:
    """Return workers for the common queue, for steps that must return to this process, and for observers.

    The second has no version: its queue belongs to this process, and in a deployment each start would leave another
    queue that the next build lacks. The third has the version of the common queue: a workflow's observers run on its
    build, which knows their inputs, and all builds have this queue.
    """
    common: dict[str, Any] = {
        "activities": activities,
        "max_concurrent_activities": ACTIVITIES,
        "graceful_shutdown_timeout": GRACE,
        # Operators read progress from heartbeats, and an activity learns from its heartbeat that it must stop.
        "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
        "default_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    }
    shared = Worker(
        client,
        task_queue=settings.task_queue,
        deployment_config=deployment_config(settings),
        workflows=migrations.workflows(),
        workflow_runner=WORKFLOW_RUNNER,
        interceptors=[interceptor],
        # How long a workflow whose worker died waits for another one; writes may be blocked during that time.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        **common,
    )
    observer_options: dict[str, Any] = {
        **common,
        "activities": migrations.observers(activities),
        "max_concurrent_activities": OBSERVERS,
        # Observers have nothing to finish, and another worker continues sooner.
        "graceful_shutdown_timeout": timedelta(0),
    }
    observing = Worker(
        client,
        task_queue=observers_queue(settings.task_queue),
        deployment_config=deployment_config(settings),
        **observer_options,
    )
    return [shared, Worker(client, task_queue=own_queue, **common), observing]


async def _shut_down(workers: list[Worker], runs: list[asyncio.Task[None]], runtime: Runtime) -> None:
    """Wait until running steps end or are released, then stop Spark; raise the error of a failed worker."""
    _log.info("shutting down")
    try:
        async with asyncio.timeout(SHUTDOWN_TIMEOUT.total_seconds()):
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            ends = await asyncio.gather(*runs, return_exceptions=True)
            await asyncio.to_thread(runtime.stop)
    except TimeoutError:
        _log.warning("steps still run after %.0f s; another worker takes them over", SHUTDOWN_TIMEOUT.total_seconds())
        return
    if failure := next((end for end in ends if isinstance(end, Exception)), None):
        raise failure


def _report_ready(client: Client, settings: Settings, ready_file: Path | None, seconds: float) -> None:
    temporal = f"{client.service_client.config.target_host}/{client.namespace}"
    line = (
        f"worker ready: queue={settings.task_queue} temporal={temporal} spark={settings.spark_master} ({seconds:.1f} s)"
    )
    if settings.build_id:
        _log.info("new migrations start on this build after: %s", set_current_line(settings, client.namespace))
    report_ready(line, ready_file)


def deployment_config(settings: Settings) -> WorkerDeploymentConfig | None:
    """Return the version of a worker of the common queue; None if versioning is off.

    The behaviour is set here and not in the workflows: a worker without versions would refuse such workflows.
    """
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment_name, settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def set_current_line(settings: Settings, namespace: str) -> str:
    """Return the `temporal` command that makes new migrations start on this build."""
    return (
        f"temporal worker deployment set-current-version --namespace {namespace} "
        f"--deployment-name {settings.deployment_name} --build-id {settings.build_id} --yes"
    )
