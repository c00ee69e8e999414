"""The worker's process: from its settings to its last breath."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from temporalio.client import Client
from temporalio.worker import Worker

from activities.lifecycle.progress import HEARTBEAT_THROTTLE
from models.settings import Settings
from spark.environment import settle
from worker import catalog as migrations
from worker.connection import connect, worker_runtime
from worker.exit_codes import CommandFailed, ExitCode, leave, report
from worker.logs import configure_logs
from worker.registration import register_search_attributes
from worker.versioning import deployment_config, set_current_line

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime

ACTIVITIES = 200
"""Most activities at once on each queue: more than the migrations that one worker has, so that a step with writes
blocked, or one that gives them back, never waits for a place that a long copy has. Each costs a thread; what costs more
is bounded where it is used, as Spark's slots are."""

THREADS = 2 * ACTIVITIES + 16
"""Activities block in threads of the loop's own pool; Python's default would be six on a machine of two cores."""

GRACE = timedelta(seconds=5)
"""How long running steps may go on after the signal to stop; another worker resumes what is cancelled then."""

FAREWELL = timedelta(seconds=20)
"""Longest orderly shutdown; Kubernetes kills after 30 s by default."""

_log = logging.getLogger(__name__)


def run_worker(settings: Settings, *, ready_file: Path | None = None) -> NoReturn:
    """Serve the task queue until SIGTERM (exit code 0), SIGINT (130) or a failure, and end the process.

    Args:
        settings: of this process.
        ready_file: exists while the worker is ready, and holds its readiness line.

    Raises:
        CommandFailed: the log format is unknown; all later failures end the process with their exit code.
    """
    # Before there is another thread; and a crash in native code says where, which nothing else would tell.
    settle()
    faulthandler.enable()
    configure_logs()
    asyncio.run(_serve_and_leave(settings, ready_file))
    leave(ExitCode.UNEXPECTED)


async def _serve_and_leave(settings: Settings, ready_file: Path | None) -> None:
    """Leave from inside the loop: its own end would wait for threads that still hang in a store."""
    try:
        code = await _serve(settings, ready_file)
    except CommandFailed as error:
        code = report(error)
    except Exception:  # noqa: BLE001 - the last place where it can be told
        _log.exception("the worker failed")
        code = ExitCode.UNEXPECTED
    finally:
        _withdraw(ready_file)
    leave(code)


async def _serve(settings: Settings, ready_file: Path | None) -> ExitCode:
    began = time.monotonic()
    stop = _stop_on_signals()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="step"))
    client = await connect(worker_runtime(settings.metrics_address))
    if added := await register_search_attributes(client):
        _log.info("registered the search attributes %s", ", ".join(added))
    # The random part tells a restarted container, which has the same host and pid, from the one that held the watch.
    own_queue = f"{settings.task_queue}@{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    from activities.lifecycle.runtime import Runtime

    runtime = Runtime(settings, client, own_queue)
    # Not awaited: a step that gives writes back needs no Spark, and whoever is blocked shall not wait for it.
    starting = asyncio.create_task(_start(runtime))
    workers = _workers(client, settings, own_queue, migrations.activities(runtime))
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    _tell_ready(client, settings, ready_file, time.monotonic() - began)
    await _until_one_ends([stop, *runs], starting)
    _withdraw(ready_file)
    await _shut_down(workers, runs, runtime)
    if starting.done():
        # Raises what kept Spark from starting.
        starting.result()
    return stop.result() if stop.done() else ExitCode.UNEXPECTED


async def _until_one_ends(all_day: Sequence[asyncio.Future[Any]], starting: asyncio.Task[None]) -> None:
    """Wait for the first that ends of those that shall not, or until Spark has failed to start."""
    await asyncio.wait([*all_day, starting], return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and not starting.exception():
        await asyncio.wait(all_day, return_when=asyncio.FIRST_COMPLETED)


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
    client: Client, settings: Settings, own_queue: str, activities: Sequence[Callable[..., Any]]
) -> list[Worker]:
    """One worker for the common queue, and one for the steps that have to return to this process.

    The latter has no version: its queue is this process's alone, and in a deployment each start would leave one more
    queue that the next build is missing.
    """
    common: dict[str, Any] = {
        "activities": activities,
        "max_concurrent_activities": ACTIVITIES,
        "graceful_shutdown_timeout": GRACE,
        # People read progress in heartbeats; and an activity learns with them that it is to stop, while writes may be
        # blocked.
        "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
        "default_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    }
    shared = Worker(
        client,
        task_queue=settings.task_queue,
        deployment_config=deployment_config(settings),
        workflows=migrations.workflows(),
        # A workflow whose worker is gone waits this long before another takes it; writes may be blocked meanwhile.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        **common,
    )
    return [shared, Worker(client, task_queue=own_queue, **common)]


async def _shut_down(workers: list[Worker], runs: list[asyncio.Task[None]], runtime: Runtime) -> None:
    """Let running steps end or hand them back, then stop Spark; raises what made a worker fail."""
    _log.info("shutting down")
    try:
        async with asyncio.timeout(FAREWELL.total_seconds()):
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            ends = await asyncio.gather(*runs, return_exceptions=True)
            await asyncio.to_thread(runtime.stop)
    except TimeoutError:
        _log.warning("steps still run after %.0f s; another worker takes them over", FAREWELL.total_seconds())
        return
    if failure := next((end for end in ends if isinstance(end, Exception)), None):
        raise failure


def _stop_on_signals() -> asyncio.Future[ExitCode]:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[ExitCode] = loop.create_future()

    def take(code: ExitCode) -> None:
        if stop.done():
            leave(ExitCode.INTERRUPTED)
        stop.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, take, ExitCode.OK)
    loop.add_signal_handler(signal.SIGINT, take, ExitCode.INTERRUPTED)
    return stop


def _tell_ready(client: Client, settings: Settings, ready_file: Path | None, seconds: float) -> None:
    temporal = f"{client.service_client.config.target_host}/{client.namespace}"
    line = (
        f"worker ready: queue={settings.task_queue} temporal={temporal} spark={settings.spark_master} ({seconds:.1f} s)"
    )
    if settings.build_id:
        _log.info("new migrations begin on this build after: %s", set_current_line(settings, client.namespace))
    if ready_file:
        ready_file.write_text(f"{line}\n")
    print(line, flush=True)


def _withdraw(ready_file: Path | None) -> None:
    if ready_file:
        ready_file.unlink(missing_ok=True)
