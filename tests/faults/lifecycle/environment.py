"""Environment of the fault rounds: Temporal and its workers, the faults, and how the servers recover."""

from __future__ import annotations

import itertools
import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from models.lifecycle.report import Report
from pulsar_devstack.errors import ServerFailed
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.lifecycle.gates import Gates
from tests.support.lifecycle.operator import Operator, Run
from tests.support.waiting import wait_for

End = Report | ApplicationError
"""How a migration ends: with a report, or with a typed failure."""

_RESTARTS = 6
_RECOVERY_LIMIT = 5.0
"""A server whose disk has room again is given so many seconds to continue by itself."""


class FaultEnvironment:
    """Temporal, its workers and the operator; another worker can take over.

    Args:
        folder: for the workers' files.
        stack: holds Temporal.
        operator: starts and steers migrations.
        gates: at which steps are held.
        link: between workers and Temporal.
    """

    def __init__(self, folder: Path, stack: Stack, operator: Operator, gates: Gates, link: Proxy) -> None:
        self.stack, self.operator, self.gates, self.link = stack, operator, gates, link
        self._folder = folder
        self._numbers = itertools.count(1)
        self.worker = self.new_worker()

    def new_worker(self) -> FaultyWorkerProcess:
        """Return a further worker, which is not started yet."""
        folder = self._folder / f"worker-{next(self._numbers)}"
        folder.mkdir()
        return FaultyWorkerProcess(self.link.address, folder, self.gates)

    def close(self) -> None:
        """End the worker."""
        self.worker.close()

    def end_of(self, run: Run, limit: float) -> End:
        """Return how a migration ends, while Temporal may stop and restart.

        Raises:
            AssertionError: it did not end in time, or it ended without a report and without a typed failure, or the
                worker has ended.
        """

        def seen() -> End | None:
            assert self.worker.pid
            try:
                return run.result(10)
            except WorkflowFailureError as error:
                if isinstance(error.cause, ApplicationError) and error.cause.type:
                    return error.cause
                raise AssertionError(f"a failure without a type: {error.cause!r}") from error
            except (RPCError, TimeoutError):
                return None

        return wait_for("the end of the migration", seen, limit)


def end_state(end: End | None) -> str:
    """Return how a migration ended, in a few words."""
    match end:
        case Report(outcome=outcome):
            return str(outcome)
        case ApplicationError(type=kind):
            return f"failed: {kind}"
        case _:
            return "did not end"


class Hits:
    """Hits workers and servers, and brings them back; a context manager that waits for what it has begun.

    Args:
        environment: whose worker and Temporal are hit.
    """

    def __init__(self, environment: FaultEnvironment) -> None:
        self._environment = environment
        self._returns: list[Return] = []
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.join()

    def worker(self) -> None:
        """Kill the worker, and start it again; a hold of its steps ends with it, and the next attempt finds none."""
        self._environment.worker.kill()
        self._environment.worker.restart()

    def zombie(self) -> FaultyWorkerProcess:
        """Freeze the worker with its executors, and let another one take over; returns the frozen one."""
        frozen, self._environment.worker = self._environment.worker, self._environment.new_worker()
        frozen.freeze()
        self._environment.worker.restart()
        return frozen

    def kill(self, server: Server, seconds: float) -> None:
        """Kill a server, and bring it back after a while."""
        server.kill()
        self._returns.append(Return(server, seconds, lambda: None))

    def freeze(self, server: Server, seconds: float) -> None:
        """Freeze a server for a while."""
        server.pause()
        self.later(seconds, server.resume)

    def fill_disk(self, server: Server, seconds: float) -> None:
        """Make a server unable to write to any file for a while, as if its disk was full.

        A server that ended, or serves no client when there is room again, is restarted.
        """
        pid = server.pid
        assert pid, f"{server.name} does not run"
        # Needs no rights and no file system of its own, other than a small disk.
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))

        def make_room() -> None:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
            with suppress(AssertionError):
                wait_for(f"{server.name}", lambda: server.ready or not server.alive, _RECOVERY_LIMIT)
            if not server.ready:
                server.kill()

        self._returns.append(Return(server, seconds, make_room))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call a function after a while."""
        timer = threading.Timer(seconds, action)
        timer.start()
        self._timers.append(timer)

    def wait_all_back(self) -> None:
        """Wait until every server that was killed is back.

        Raises:
            ServerFailed: one did not come back in some attempts.
        """
        for back in self._returns:
            back.wait()


class Return:
    """Brings a killed server back after a while, in the background: a broker's start fails while writes are blocked."""

    def __init__(self, server: Server, after: float, first: Callable[[], None]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="return")
        self._done: Future[None] = self._thread.submit(self._bring_back, server, after, first)

    def wait(self, limit: float = 300) -> None:
        """Wait until it is back; on a busy machine one start may take minutes.

        Raises:
            ServerFailed: it did not come back in some attempts.
        """
        self._done.result(limit)
        self._thread.shutdown()

    def _bring_back(self, server: Server, after: float, first: Callable[[], None]) -> None:
        threading.Event().wait(after)
        first()
        for attempt in range(1, _RESTARTS + 1):
            try:
                server.start()
            except ServerFailed:
                if attempt == _RESTARTS:
                    raise
            else:
                return
